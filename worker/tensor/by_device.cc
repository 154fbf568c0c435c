#include "worker/tensor/by_device.h"

#include <algorithm>

namespace ddprun {

std::vector<std::pair<Device, std::vector<Tensor>>> by_device(const std::vector<Tensor>& tensors) {
  std::vector<std::pair<Device, std::vector<Tensor>>> devices;
  for (const Tensor& tensor : tensors) {
    auto found = std::ranges::find(devices, tensor.device(), [](const auto& each) { return each.first; });
    if (found == devices.end()) found = devices.insert(found, {tensor.device(), {}});
    found->second.push_back(tensor);
  }
  return devices;
}

}  // namespace ddprun
