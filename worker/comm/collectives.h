#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"

// Collectives built on those of ProcessGroup. They block, and throw the operation's error. As with those, every rank
// calls them in the same order.
namespace ddprun {

template <class T>
void allreduce(ProcessGroup& group, std::vector<T>& values, Reduction reduction = {}) {
  group.allreduce(span_of(values), reduction, {.blocking = true});
}

// Returns every rank's string, in rank order; lengths may differ. timeout: of each of its operations, as in OpOptions.
std::vector<std::string> all_gather_bytes(ProcessGroup& group, const std::string& own,
                                          std::optional<std::chrono::milliseconds> timeout = {});

// Returns source's string; those of the other ranks are ignored.
std::string broadcast_bytes(ProcessGroup& group, std::string own, int source);

}  // namespace ddprun
