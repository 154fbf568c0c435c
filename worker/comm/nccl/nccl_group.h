#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// GPUs by NCCL: collectives on memory of the CUDA device that is current where the group is made. A Work is done when
// the device is; operations begin behind what the default stream was given before their call. Built with
// DDPRUN_CUDA=ON; else nccl_unavailable.cc takes its place.
//
// Throws what make_transport_group throws, and Errc::unsupported where the build or the host lacks what it takes. Calls
// on host memory throw Errc::usage; those that it has no form of (bitwise and premultiplied reductions, reductions in
// unequal parts, many spans, send and recv) Errc::unsupported.
bool nccl_available();
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options);

}  // namespace ddprun::comm
