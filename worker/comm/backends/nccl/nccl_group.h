#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// Groups over NCCL: operations on memory of one CUDA device. A Work is done when the device has finished; operations
// begin after the work that the default stream had before the call. Built with DDPRUN_CUDA=ON; otherwise
// nccl_unavailable.cc implements these functions.

// Whether the build has NCCL and CUDA finds a device.
bool nccl_available();
// The reason to show to other ranks, "on host b, whose build has no NCCL"; empty where NCCL is available.
std::string why_no_nccl();
// The device that memory belongs to; none for memory of the host only.
std::optional<int> device_of(const void* memory);

// Uses the current device. Throws what make_transport_group throws, and Errc::unsupported where the build has no NCCL
// or the host no device. Calls on host memory throw Errc::usage; calls that NCCL cannot execute (bitwise reductions, a
// recv from any source) throw Errc::unsupported.
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options);
// The same on that device; why: the reason to log.
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options, int device, const char* why);

}  // namespace ddprun::comm
