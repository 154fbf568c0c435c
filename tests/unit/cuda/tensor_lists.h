#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/numerics.h"
#include "tests/unit/cuda/device_tensor.h"

namespace ddprun::test {

// Tensors of the host, and copies of them on the device.
class TensorList {
 public:
  explicit TensorList(std::vector<Tensor> tensors) : host(std::move(tensors)) {
    for (std::size_t i = 0; i < host.size(); ++i) {
      on_device_.push_back(std::make_unique<DeviceTensor>(host[i], i % 3 == 1 ? 1 : 0));
      views_.push_back(on_device_.back()->view());
    }
  }

  std::size_t size() const { return host.size(); }
  const cuda::View* views() const { return views_.data(); }
  std::vector<Tensor> read() const {
    std::vector<Tensor> all;
    for (const auto& tensor : on_device_) all.push_back(tensor->read());
    return all;
  }
  // Returns how many tensors differ from those of the host in some bit.
  int differences() const {
    int count = 0;
    for (std::size_t i = 0; i < host.size(); ++i) count += same_values(on_device_[i]->read(), host[i]) ? 0 : 1;
    return count;
  }

  std::vector<Tensor> host;

 private:
  std::vector<std::unique_ptr<DeviceTensor>> on_device_;
  std::vector<cuda::View> views_;
};

// Returns tensors of many extents, some empty, some of several chunks; more than a kernel takes at once; of each type.
inline std::vector<Tensor> random_tensors(std::uint64_t seed, const std::vector<DType>& types) {
  std::vector<std::int64_t> extents{0, 1, 67, 8192, 20000, 3};
  for (std::int64_t i = 0; i < 210; ++i) extents.push_back(i % 7);
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < extents.size(); ++i)
    tensors.push_back(random_tensor({extents[i]}, seed + 1000 * i).to(types[i / 50 % types.size()]));
  return tensors;
}

// Returns the number of kernels and copies that a call queues.
template <class Call>
std::uint64_t launches_of(const Call& call) {
  const auto before = device_api().launches(test_device());
  check(call());
  return device_api().launches(test_device()) - before;
}

}  // namespace ddprun::test
