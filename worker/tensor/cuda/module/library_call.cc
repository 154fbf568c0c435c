#include "ddprun/worker/tensor/cuda/module/library_call.h"

#include "ddprun/common/error.h"

namespace ddprun::cuda {
namespace {

Errc code_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return Errc::unsupported;
    case CUBLAS_STATUS_INVALID_VALUE:
      return Errc::internal;
    default:
      return Errc::io;
  }
}

// Codes are in groups of a thousand.
Errc code_of(cudnnStatus_t status) {
  switch (static_cast<int>(status) / 1000 * 1000) {
    case CUDNN_STATUS_NOT_SUPPORTED:
      return Errc::unsupported;
    case CUDNN_STATUS_BAD_PARAM:
      return Errc::internal;
    default:
      return Errc::io;
  }
}

[[noreturn]] void fail(Errc code, const char* function, const char* reason, int status, const LibraryCall& call) {
  throw make_error(code, "{} of {} failed on {}: {} returned {} ({})", call.operation, name_of(call.dtype),
                   call.device.name(), function, reason, status);
}

}  // namespace

void check(cublasStatus_t status, const char* function, const LibraryCall& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(code_of(status), function, cublasLtGetStatusName(status), static_cast<int>(status), call);
}

void check(cudnnStatus_t status, const char* function, const LibraryCall& call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(code_of(status), function, cudnnGetErrorString(status), static_cast<int>(status), call);
}

void check_architecture(const LibraryCall& call) {
  if (call.dtype != DType::bfloat16 || call.device.architecture() >= 80) return;
  throw make_error(Errc::unsupported,
                   "{} of bfloat16 is not supported on {}: it needs compute capability 8.0, the device has {}.{}",
                   call.operation, call.device.name(), call.device.major, call.device.minor);
}

}  // namespace ddprun::cuda
