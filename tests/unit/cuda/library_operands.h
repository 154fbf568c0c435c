#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/cuda/emulator/machine.h"
#include "ddprun/worker/tensor/cuda/module/check.h"
#include "ddprun/worker/tensor/cuda/module/device.h"
#include "ddprun/worker/tensor/kernels.h"
#include "ddprun/worker/tensor/random.h"
#include "tests/support/catch.h"

// What tests of the module's operations share: the CPU's table, in float64, is their oracle.
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

// A dense tensor in the memory of the emulated device.
class DeviceTensor {
 public:
  // With the values of one of the host.
  DeviceTensor(DeviceContext& device, const Tensor& host) : DeviceTensor(device, host.shape(), host.dtype()) {
    if (host.numel() > 0)
      check(cudaMemcpyAsync(memory_.data(), host.raw(), host.bytes(), cudaMemcpyHostToDevice, device.stream()),
            "cudaMemcpyAsync");
  }
  // With garbage: NaN in each of the floating-point types.
  DeviceTensor(DeviceContext& device, const Shape& shape, DType dtype)
      : device_(&device),
        shape_(shape),
        memory_(device.memory, static_cast<std::size_t>(numel(shape)) * size_of(dtype)) {
    view_.data = memory_.data();
    view_.dtype = dtype;
    view_.rank = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
      view_.shape[i] = shape[i];
      view_.strides[i] = stride;
    }
    if (memory_.bytes() > 0)
      check(cudaMemsetAsync(memory_.data(), 0xff, memory_.bytes(), device.stream()), "cudaMemsetAsync");
  }

  const View& view() const { return view_; }
  Tensor to_host() const {
    Tensor result = Tensor::empty(shape_, view_.dtype);
    if (result.numel() > 0)
      check(cudaMemcpyAsync(result.raw(), memory_.data(), result.bytes(), cudaMemcpyDeviceToHost, device_->stream()),
            "cudaMemcpyAsync");
    check(cudaStreamSynchronize(device_->stream()), "cudaStreamSynchronize");
    return result;
  }

 private:
  DeviceContext* device_;
  Shape shape_;
  Scratch memory_;
  View view_;
};

inline std::vector<double> values(const Tensor& tensor) {
  const Tensor wider = tensor.to(DType::float64).contiguous();
  return {wider.data<double>(), wider.data<double>() + wider.numel()};
}

// The largest |a - b| as a share of the largest magnitude in b, at least 1. Infinite where the shapes differ or a value
// is NaN.
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

// What rounding to a type may cost, a few times.
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

// The error that the function throws; fails the test where it throws none.
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
