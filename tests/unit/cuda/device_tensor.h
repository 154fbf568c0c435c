#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/tensor.h"
#include "tests/unit/cuda/tested_module.h"

// Tensors in the memory of a device, for tests that call the module's functions as the worker does.
namespace ddprun::test {

// A copy of a tensor's memory with its strides, between guard bytes of known values.
class DeviceTensor {
 public:
  // shift is the number of elements before it, so that it is not aligned.
  explicit DeviceTensor(const Tensor& host, std::int64_t shift = 0);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  const cuda::View& view() const { return view_; }
  // Returns it row-major, on the host. Throws where something outside of the tensor was written.
  Tensor read() const;

 private:
  Tensor like_;
  std::size_t before_, bytes_, total_;
  void* memory_ = nullptr;
  cuda::View view_;
};

// A view without memory: an operand that is left out.
inline const cuda::View left_out{};

// Returns whether the bits are equal, where any NaN equals any other: processors choose its sign and payload.
bool same_values(const Tensor& a, const Tensor& b);

// Returns whether a function of elements has given the same values on the device and on the CPU. On a real device those
// of float64 may differ by some roundings, as their exponentials are CUDA's, and those of the CPU the C library's.
bool same_results(const Tensor& of_device, const Tensor& of_cpu);

inline const std::vector<DType> floating_types{DType::float32, DType::float64, DType::bfloat16, DType::float16};
inline const std::vector<DType> all_types{DType::float32, DType::float64, DType::float16, DType::bfloat16,
                                          DType::int8,    DType::uint8,   DType::int32,   DType::int64};

}  // namespace ddprun::test
