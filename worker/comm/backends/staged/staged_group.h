#pragma once

#include <memory>

#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// A group whose operations take memory of one CUDA device, over a group that takes memory of the host: a thread copies
// what an operation reads to the host, executes it there, and copies back what it has written. Reductions and
// broadcasts pass in chunks, so that copies in both directions run beside the transfer of other chunks.
//
// Operations begin after the work that the stream of OpOptions::after, or the default stream, had before the call.
// Sends and receives are refused (Errc::unsupported): collectives alone have an order that all ranks share.
// Throws Errc::unsupported where there is no CUDA module.
std::unique_ptr<ProcessGroup> make_staged_group(std::unique_ptr<ProcessGroup> host, int device);

}  // namespace ddprun::comm
