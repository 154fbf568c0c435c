#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/random.h"
#include "tests/support/catch.h"
#include "tests/unit/cuda/tested_module.h"

// Helpers that tests of the module's operations share: the CPU's table, in float64, is their oracle. They use only the
// module's DeviceApi.
namespace ddprun::cuda::testing {

inline constexpr DType floating_types[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

inline Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype) {
  Generator generator(seed);
  Tensor result = Tensor::empty(shape, DType::float64);
  fill_normal(result, 0, 1, generator);
  return result.to(dtype);
}

inline Tensor wide(const Tensor& tensor) {
  return tensor.defined() ? tensor.to(DType::float64) : tensor;
}

// The memory of a device; null for 0 bytes.
class DeviceBytes {
 public:
  DeviceBytes(DeviceContext& device, std::size_t bytes) : memory_(nullptr, Release{&device, bytes}) {
    void* memory = nullptr;
    if (bytes > 0) test::check(test::device_api().allocate(&device, bytes, &memory));
    memory_.reset(memory);
  }
  void* data() const { return memory_.get(); }
  std::size_t size() const { return memory_.get_deleter().bytes; }

  void fill_from(const void* host) const { copy(Direction::to_device, data(), host); }
  void copy_to(void* host) const { copy(Direction::to_host, host, data()); }

 private:
  struct Release {
    DeviceContext* device;
    std::size_t bytes;
    void operator()(void* memory) const { test::device_api().release(device, memory, bytes); }
  };

  void copy(Direction direction, void* to, const void* from) const {
    DeviceContext* const device = memory_.get_deleter().device;
    if (size() > 0) test::check(test::device_api().copy_bytes(device, Queue::compute, direction, to, from, size()));
    test::check(test::device_api().synchronize(device, Queue::compute));
  }

  std::unique_ptr<void, Release> memory_;
};

// A dense tensor in the memory of the device.
class DeviceTensor {
 public:
  // Makes one with the values of a tensor of the host.
  DeviceTensor(DeviceContext& device, const Tensor& host) : DeviceTensor(device, host.shape(), host.dtype()) {
    memory_.fill_from(host.raw());
  }
  // Fills it with garbage: NaN in each of the floating-point types.
  DeviceTensor(DeviceContext& device, const Shape& shape, DType dtype)
      : shape_(shape), memory_(device, static_cast<std::size_t>(numel(shape)) * size_of(dtype)) {
    view_.data = memory_.data();
    view_.dtype = dtype;
    view_.rank = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
      view_.shape[i] = shape[i];
      view_.strides[i] = stride;
    }
    memory_.fill_from(std::vector<unsigned char>(memory_.size(), 0xff).data());
  }

  const View& view() const { return view_; }
  Tensor to_host() const {
    Tensor result = Tensor::empty(shape_, view_.dtype);
    memory_.copy_to(result.raw());
    return result;
  }

 private:
  Shape shape_;
  DeviceBytes memory_;
  View view_;
};

inline std::vector<double> values(const Tensor& tensor) {
  const Tensor wider = tensor.to(DType::float64).contiguous();
  return {wider.data<double>(), wider.data<double>() + wider.numel()};
}

// Returns the largest |a - b| as a share of the largest magnitude in b, at least 1. It is infinite where the shapes
// differ or a value is NaN.
inline double difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  double worst = 0, scale = 1;
  const std::vector<double> x = values(a), y = values(b);
  for (double value : y) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double distance = std::abs(x[i] - y[i]);
    worst = distance <= worst ? worst : distance == distance ? distance : INFINITY;
  }
  return worst / scale;
}
inline double difference(const DeviceTensor& a, const Tensor& b) {
  return difference(a.to_host(), b);
}

// Returns a few times the rounding error of a type.
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-13;
    case DType::bfloat16:
      return 8e-3;
    case DType::float16:
      return 1e-3;
    default:
      return 2e-6;
  }
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// Returns the error that the function throws; fails the test where it throws none.
template <class Function>
Error error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  return {Errc::internal, ""};
}

}  // namespace ddprun::cuda::testing
