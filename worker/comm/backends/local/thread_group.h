#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// Ranks as threads of one process that share a plain, locked meeting place: the oracle that other back ends are
// compared with, and the example for a new one. Reductions fold the ranks' values in rank order. An operation is
// carried out by the call that completes it; a timeout is noticed by whoever waits. groups[r] belongs to rank r; each
// may be destroyed on its own.
std::vector<std::unique_ptr<ProcessGroup>> make_thread_groups(
    int size, std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace ddprun::comm
