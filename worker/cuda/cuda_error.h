#pragma once

#include <cstdint>
#include <string_view>

#include "common/errc.h"

// The meanings of errors of the CUDA runtime, by their numbers: code that reports one needs no header of CUDA for that.
namespace ddprun {

enum class CudaFault : std::uint8_t {
  call,    // a fault of the call itself
  kernel,  // a fault of a kernel that was queued before; the device's context is lost, so that all later calls fail too
  device,  // the device has failed; all later calls fail too
  driver,  // the driver is too old for the runtime, or there is none
  code,    // the module has no code that this device runs
};

struct CudaErrorMeaning {
  int status;
  CudaFault fault;
  Errc code;
  std::string_view advice;  // empty if the runtime's own text says it
};

namespace cuda_advice {
inline constexpr std::string_view kernel =
    "a kernel that was queued earlier did this, and the device's context is lost: this process can compute nothing "
    "more on it; with CUDA_LAUNCH_BLOCKING=1 the operation at fault fails itself";
inline constexpr std::string_view device =
    "the device has failed: look for 'NVRM: Xid' in the kernel's log (dmesg) of this host, nvidia-smi says whether it "
    "has to be reset";
inline constexpr std::string_view busy =
    "another process has the device to itself (nvidia-smi shows it and the compute mode), or the device has failed: "
    "look for 'NVRM: Xid' in the kernel's log (dmesg) of this host";
inline constexpr std::string_view unknown =
    "the driver gives no reason: look for 'NVRM: Xid' in the kernel's log (dmesg) of this host";
inline constexpr std::string_view no_device =
    "nvidia-smi -L lists the devices of a host, CUDA_VISIBLE_DEVICES hides some of them from a process";
}  // namespace cuda_advice

inline constexpr CudaErrorMeaning cuda_error_meanings[] = {
    {1, CudaFault::call, Errc::internal, ""},                           // cudaErrorInvalidValue
    {9, CudaFault::call, Errc::internal, ""},                           // cudaErrorInvalidConfiguration
    {35, CudaFault::driver, Errc::unsupported, ""},                     // cudaErrorInsufficientDriver
    {36, CudaFault::driver, Errc::unsupported, ""},                     // cudaErrorCallRequiresNewerDriver
    {46, CudaFault::call, Errc::io, cuda_advice::busy},                 // cudaErrorDevicesUnavailable
    {98, CudaFault::code, Errc::unsupported, ""},                       // cudaErrorInvalidDeviceFunction
    {100, CudaFault::call, Errc::unsupported, cuda_advice::no_device},  // cudaErrorNoDevice
    {101, CudaFault::call, Errc::usage, cuda_advice::no_device},        // cudaErrorInvalidDevice
    {200, CudaFault::code, Errc::unsupported, ""},                      // cudaErrorInvalidKernelImage
    {209, CudaFault::code, Errc::unsupported, ""},                      // cudaErrorNoKernelImageForDevice
    {214, CudaFault::device, Errc::io, cuda_advice::device},            // cudaErrorECCUncorrectable
    {218, CudaFault::code, Errc::unsupported, ""},                      // cudaErrorInvalidPtx
    {220, CudaFault::device, Errc::io, cuda_advice::device},            // cudaErrorNvlinkUncorrectable
    {222, CudaFault::driver, Errc::unsupported, ""},                    // cudaErrorUnsupportedPtxVersion
    {226, CudaFault::device, Errc::io, cuda_advice::device},            // cudaErrorContained
    {400, CudaFault::call, Errc::internal, ""},                         // cudaErrorInvalidResourceHandle
    {700, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorIllegalAddress
    {701, CudaFault::call, Errc::internal, ""},                         // cudaErrorLaunchOutOfResources
    {702, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorLaunchTimeout
    {710, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorAssert
    {714, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorHardwareStackError
    {715, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorIllegalInstruction
    {716, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorMisalignedAddress
    {717, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorInvalidAddressSpace
    {718, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorInvalidPc
    {719, CudaFault::kernel, Errc::io, cuda_advice::kernel},            // cudaErrorLaunchFailure
    {801, CudaFault::call, Errc::unsupported, ""},                      // cudaErrorNotSupported
    {802, CudaFault::call, Errc::io,
     "on a host with NVSwitch nvidia-fabricmanager has to run"},  // cudaErrorSystemNotReady
    {803, CudaFault::driver, Errc::unsupported,
     "the driver's libraries and its kernel module are of different versions: load the module again, or restart the "
     "host"},                                                // cudaErrorSystemDriverMismatch
    {999, CudaFault::call, Errc::io, cuda_advice::unknown},  // cudaErrorUnknown
};

constexpr CudaErrorMeaning meaning_of_cuda_error(int status) {
  for (const CudaErrorMeaning& meaning : cuda_error_meanings)
    if (meaning.status == status) return meaning;
  return {status, CudaFault::call, Errc::io, ""};
}

}  // namespace ddprun
