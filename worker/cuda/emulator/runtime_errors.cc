// Errors of the CUDA runtime: the last one of a thread, names and texts.
#include <utility>

#include "worker/cuda/emulator/runtime_call.h"

namespace ddprun::cuda::emulator {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

cudaError_t fail(const Call& call, cudaError_t usual) {
  const cudaError_t error = call.failure(usual);
  if (error != usual && is_sticky(error) && call.machine().device_count() > 0) call.device().fault = error;
  return error;
}

}  // namespace ddprun::cuda::emulator

using namespace ddprun::cuda::emulator;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define DDPRUN_NAME(name) \
  case name:              \
    return #name
    DDPRUN_NAME(cudaSuccess);
    DDPRUN_NAME(cudaErrorInvalidValue);
    DDPRUN_NAME(cudaErrorMemoryAllocation);
    DDPRUN_NAME(cudaErrorInitializationError);
    DDPRUN_NAME(cudaErrorInvalidConfiguration);
    DDPRUN_NAME(cudaErrorInvalidMemcpyDirection);
    DDPRUN_NAME(cudaErrorInsufficientDriver);
    DDPRUN_NAME(cudaErrorDevicesUnavailable);
    DDPRUN_NAME(cudaErrorInvalidDeviceFunction);
    DDPRUN_NAME(cudaErrorNoDevice);
    DDPRUN_NAME(cudaErrorInvalidDevice);
    DDPRUN_NAME(cudaErrorInvalidKernelImage);
    DDPRUN_NAME(cudaErrorNoKernelImageForDevice);
    DDPRUN_NAME(cudaErrorECCUncorrectable);
    DDPRUN_NAME(cudaErrorInvalidPtx);
    DDPRUN_NAME(cudaErrorNvlinkUncorrectable);
    DDPRUN_NAME(cudaErrorUnsupportedPtxVersion);
    DDPRUN_NAME(cudaErrorContained);
    DDPRUN_NAME(cudaErrorInvalidResourceHandle);
    DDPRUN_NAME(cudaErrorNotReady);
    DDPRUN_NAME(cudaErrorIllegalAddress);
    DDPRUN_NAME(cudaErrorLaunchOutOfResources);
    DDPRUN_NAME(cudaErrorLaunchTimeout);
    DDPRUN_NAME(cudaErrorPeerAccessAlreadyEnabled);
    DDPRUN_NAME(cudaErrorAssert);
    DDPRUN_NAME(cudaErrorHardwareStackError);
    DDPRUN_NAME(cudaErrorIllegalInstruction);
    DDPRUN_NAME(cudaErrorMisalignedAddress);
    DDPRUN_NAME(cudaErrorInvalidAddressSpace);
    DDPRUN_NAME(cudaErrorInvalidPc);
    DDPRUN_NAME(cudaErrorLaunchFailure);
    DDPRUN_NAME(cudaErrorNotPermitted);
    DDPRUN_NAME(cudaErrorNotSupported);
    DDPRUN_NAME(cudaErrorSystemNotReady);
    DDPRUN_NAME(cudaErrorSystemDriverMismatch);
    DDPRUN_NAME(cudaErrorUnknown);
#undef DDPRUN_NAME
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorMisalignedAddress:
      return "misaligned address";
    case cudaErrorAssert:
      return "device-side assert triggered";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorUnknown:
      return "unknown error";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    default:
      return cudaGetErrorName(error);
  }
}
}  // extern "C"
