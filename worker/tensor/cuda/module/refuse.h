#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace ddprun::cuda {

struct DeviceContext;

// Throws Errc::unsupported: the device has no such operation on this type. nvcc cannot check fmt's format strings, so
// the sources of kernels have their errors made elsewhere.
[[noreturn]] void refuse_dtype(const DeviceContext& device, const char* operation, DType dtype);
// Does the same for more elements or rows than the operation takes.
[[noreturn]] void refuse_size(const DeviceContext& device, const char* operation, std::int64_t size);

}  // namespace ddprun::cuda
