#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "worker/comm/process_group.h"

namespace ddprun::comm {

struct StagedOptions {
  int device = 0;
  std::chrono::milliseconds timeout{};  // the group's, for the copies of an operation that names no timeout itself
  // The bytes of a piece of the largest buffer. A piece costs the start of two copies and two switches of threads, some
  // 30 us by calculation, and the first copy to the device and the last one back overlap with nothing. A host reduces 4
  // MiB in some 500 us, and 25 MiB, a bucket of gradients, are six pieces of that.
  std::size_t piece_bytes = std::size_t{4} << 20;
};

// A group whose operations take memory of one CUDA device, over a group that takes memory of the host: a thread copies
// what an operation reads to page-locked memory, passes it to that group, and copies back what it has written. Four
// pieces are in progress at once: collectives are divided into pieces where that leaves the bits of their results (see
// divide()), and the next collective begins while the last pieces of one are on their way. Results have the bits that
// the host's group would give.
//
// Operations begin after the work that the stream of OpOptions::after, or the default stream, had before the call.
// Memory: the largest size of four pieces, and what messages in progress have.
// Errors: a device that does not copy in time, or fails, breaks the group at all ranks.
// Throws Errc::unsupported where there is no CUDA module.
std::unique_ptr<ProcessGroup> make_staged_group(std::unique_ptr<ProcessGroup> host, const StagedOptions& options);

}  // namespace ddprun::comm
