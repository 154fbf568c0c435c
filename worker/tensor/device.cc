#include "worker/tensor/device.h"

#include <charconv>

#include <fmt/core.h>

#include "common/error.h"
#include "worker/tensor/cuda/cuda_device.h"

namespace ddprun {
namespace {

constexpr std::string_view name_of(DeviceType type) {
  return type == DeviceType::cpu ? "cpu" : "cuda";
}

}  // namespace

int cuda_device_count() {
  return cuda::device_count();
}

std::string describe_cuda_device(Device device) {
  const auto& cuda = cuda::CudaDevice::of(device);
  return fmt::format("{}, {}{}", to_string(device), cuda.api().emulated ? "an emulated device: " : "",
                     cuda.facts().name.data());
}

void allow_tf32(Device device, bool allow) {
  const auto& cuda = cuda::CudaDevice::of(device);
  cuda::check(cuda.api().allow_tf32(cuda.context(), allow));
}

std::size_t available_memory(Device device) {
  const auto& cuda = cuda::CudaDevice::of(device);
  cuda::DeviceMemoryFacts facts{};
  cuda::check(cuda.api().memory_facts(cuda.context(), &facts));
  return cuda.facts().free_bytes + facts.reserved - facts.allocated;
}

void await_device(Device device) {
  cuda::CudaDevice::of(device).synchronize();
}

void* compute_stream(Device device) {
  if (device.type == DeviceType::cpu) return nullptr;
  const auto& cuda = cuda::CudaDevice::of(device);
  return cuda.api().stream(cuda.context(), cuda::Queue::compute);
}

std::string to_string(Device device) {
  return fmt::format("{}:{}", name_of(device.type), device.index);
}

Device parse_device(std::string_view name) {
  const auto colon = name.find(':');
  const auto type = name.substr(0, colon);
  const auto digits = colon == std::string_view::npos ? std::string_view("0") : name.substr(colon + 1);
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_index = error == std::errc() && end == digits.data() + digits.size() && index >= 0;
  if (is_index && index < max_devices) {
    for (const auto each : {DeviceType::cpu, DeviceType::cuda})
      if (type == name_of(each)) return {each, index};
  }
  throw make_error(Errc::usage, "'{}' is not a device: expected cpu or cuda, or cpu:0 .. cpu:{}, or cuda:0 .. cuda:{}",
                   name, max_devices - 1, max_devices - 1);
}

}  // namespace ddprun
