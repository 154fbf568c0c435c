#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "worker/comm/process_group.h"

namespace ddprun::testing {

// Makes groups whose ranks are threads of one process and share one locked object: the reference that back ends are
// compared with, and the group of tests that need ranks without processes. Reductions combine the ranks' values in rank
// order. The last rank to call an operation executes it; the threads that wait check the timeouts. groups[r] is rank
// r's; each may be destroyed on its own.
std::vector<std::unique_ptr<ProcessGroup>> make_thread_groups(
    int size, std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace ddprun::testing
