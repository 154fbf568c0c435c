#include "worker/tensor/cuda/module/library_call.h"

#include <span>
#include <string>

#include "common/error.h"
#include "worker/cuda/cuda_error.h"
#include "worker/tensor/cuda/module/check.h"

namespace ddprun::cuda {
namespace {

// The meaning of a library's status, where its name does not say it.
struct Meaning {
  int status;
  const char* advice;
};
constexpr const char* versions_differ =
    "its libraries are of different versions: LD_LIBRARY_PATH finds some of another";
constexpr const char* library_missing = "a library of cuDNN is missing beside libcudnn.so";
constexpr const char* out_of_memory = "the library has not enough memory of host or device";
constexpr Meaning cublas_meanings[] = {
    {1, "cuBLASLt could not begin, mostly for lack of memory of the device"},  // CUBLAS_STATUS_NOT_INITIALIZED
    {3, out_of_memory},                                                        // CUBLAS_STATUS_ALLOC_FAILED
};
constexpr Meaning cudnn_meanings[] = {
    {1002, versions_differ},                      // CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH
    {1008, library_missing},                      // CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED
    {3005, "cuDNN needs a newer driver"},         // ..._INCOMPATIBLE_CUDA_DRIVER
    {3006, "cuDNN is for another CUDA runtime"},  // ..._INCOMPATIBLE_CUDART
    {3009, library_missing},                      // ..._SUBLIBRARY_UNAVAILABLE
    {4003, out_of_memory},                        // ..._HOST_ALLOCATION_FAILED
    {4004, out_of_memory},                        // ..._DEVICE_ALLOCATION_FAILED
};

std::string advice(std::span<const Meaning> meanings, int status) {
  for (const Meaning& meaning : meanings)
    if (meaning.status == status) return std::string("; ") + meaning.advice;
  return "";
}

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

// A library does not say that a kernel before its call has failed.
void check_earlier_work(const char* function, const LibraryCall& call) {
  const cudaError_t status = cudaStreamQuery(call.device.stream());
  const CudaFault fault = meaning_of_cuda_error(status).fault;
  if (fault == CudaFault::kernel || fault == CudaFault::device) check(status, function);
  cudaGetLastError();
}

[[noreturn]] void fail(Errc code, const char* function, const char* reason, int status, const LibraryCall& call,
                       std::span<const Meaning> meanings) {
  check_earlier_work(function, call);
  throw make_error(code, "{} of {} failed on {}: {} returned {} ({}){}", call.operation, name_of(call.dtype),
                   call.device.name(), function, reason, status, advice(meanings, status));
}

}  // namespace

void check(cublasStatus_t status, const char* function, const LibraryCall& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(code_of(status), function, cublasLtGetStatusName(status), static_cast<int>(status), call, cublas_meanings);
}

void check(cudnnStatus_t status, const char* function, const LibraryCall& call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(code_of(status), function, cudnnGetErrorString(status), static_cast<int>(status), call, cudnn_meanings);
}

void check_architecture(const LibraryCall& call) {
  if (call.dtype != DType::bfloat16 || call.device.architecture() >= 80) return;
  throw make_error(Errc::unsupported,
                   "{} of bfloat16 is not supported on {}: it needs compute capability 8.0, the device has {}.{}",
                   call.operation, call.device.name(), call.device.major, call.device.minor);
}

}  // namespace ddprun::cuda
