#include "worker/tensor/cuda/module/check.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "worker/cuda/cuda_error.h"
#include "worker/tensor/cuda/module/kernel_fault.h"

namespace ddprun::cuda {
namespace {

// Returns none without a driver.
std::optional<int> current_device() {
  int ordinal = 0;
  if (cudaGetDevice(&ordinal) == cudaSuccess) return ordinal;
  cudaGetLastError();
  return std::nullopt;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string advice_on_driver() {
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess) return "";
  if (driver == 0) return "there is no NVIDIA driver on this host";
  return fmt::format("the driver is for CUDA up to {}, the module was built with CUDA {}: a newer driver is needed",
                     version_text(driver), version_text(runtime));
}

std::string advice_on_code(int ordinal) {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal) != cudaSuccess)
    return "";
  return fmt::format(
      "the device has compute capability {}.{}, the CUDA module was compiled for {} (DDPRUN_CUDA_ARCHITECTURES)", major,
      minor, DDPRUN_CUDA_COMPILED_FOR);
}

std::string advice(const CudaErrorMeaning& meaning, std::optional<int> ordinal) {
  if (!meaning.advice.empty()) return std::string(meaning.advice);
  if (meaning.fault == CudaFault::driver) return advice_on_driver();
  if (meaning.fault == CudaFault::code && ordinal) return advice_on_code(*ordinal);
  return "";
}

}  // namespace

void check(cudaError_t status, const char* operation) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  const CudaErrorMeaning meaning = meaning_of_cuda_error(status);
  const std::optional<int> ordinal = current_device();
  const std::string more = advice(meaning, ordinal);
  const std::string text =
      fmt::format("{} failed{}: {} ({}){}{}", operation, ordinal ? fmt::format(" on cuda:{}", *ordinal) : "",
                  cudaGetErrorString(status), cudaGetErrorName(status), more.empty() ? "" : "; ", more);
  if (meaning.fault == CudaFault::kernel) throw KernelFault(meaning.code, text);
  throw Error(meaning.code, text);
}

}  // namespace ddprun::cuda
