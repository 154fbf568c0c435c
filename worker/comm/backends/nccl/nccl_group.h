#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// GPUs by NCCL: operations on memory of one CUDA device. A Work is done when the device is; operations begin behind
// what the default stream was given before their call. Built with DDPRUN_CUDA=ON; else nccl_unavailable.cc takes its
// place.
bool nccl_available();
// For other ranks: "on host b, whose build has no NCCL"; empty where it is available.
std::string why_no_nccl();
// The device that memory is of; none for memory of the host alone.
std::optional<int> device_of(const void* memory);

// On the device that is current. Throws what make_transport_group throws, and Errc::unsupported where the build or the
// host lacks what it takes. Calls on host memory throw Errc::usage; those that NCCL has no form of (bitwise reductions,
// a recv from any source) Errc::unsupported.
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options);
// On that device; why: is logged.
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options, int device, const char* why);

}  // namespace ddprun::comm
