#pragma once

#include <memory>

#include "worker/comm/bootstrap/rank_location.h"
#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// Groups over NCCL: operations on memory of one CUDA device. A Work is done when the device has finished; operations
// begin after the work that the default stream had before the call. CUDA and NCCL come
// from the CUDA module (cuda_module.h).

// Returns whether there is a CUDA module, and CUDA finds a device.
bool nccl_available();
// Returns the PCI bus id of a device, or why this rank cannot use it: "on host b, where CUDA finds no GPU".
DevicePlace place_of_device(int device);

// Uses the current device. Throws what make_transport_group throws, and Errc::unsupported where there is no
// CUDA module or no device. Calls on host memory throw Errc::usage; calls that NCCL cannot execute (bitwise reductions,
// a recv from any source) throw Errc::unsupported.
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options);
// Does the same on that device; why: the reason to log.
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options, int device, const char* why);

}  // namespace ddprun::comm
