#include "ddprun/worker/tensor/cuda/module/check.h"

#include <fmt/format.h>

#include "ddprun/common/error.h"

namespace ddprun::cuda {
namespace {

Errc code_of(cudaError_t status) {
  switch (status) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotSupported:
      return Errc::unsupported;
    case cudaErrorInvalidDevice:
      return Errc::usage;
    case cudaErrorMemoryAllocation:
      return Errc::io;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
      return Errc::internal;
    default:
      return Errc::io;
  }
}

}  // namespace

void check(cudaError_t status, const char* operation) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  int ordinal = 0;
  const bool has_device = cudaGetDevice(&ordinal) == cudaSuccess;  // not without a driver
  throw make_error(code_of(status), "{} failed{}: {} ({})", operation,
                   has_device ? fmt::format(" on cuda:{}", ordinal) : "", cudaGetErrorString(status),
                   cudaGetErrorName(status));
}

}  // namespace ddprun::cuda
