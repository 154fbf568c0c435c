#pragma once

#include <string>
#include <vector>

#include "ddprun/worker/comm/process_group.h"

// Collectives built on a group's core. Blocking; every rank calls them in the same order, as it does the core's.
namespace ddprun {

template <class T>
void allreduce(ProcessGroup& group, std::vector<T>& values, Reduction reduction = {}) {
  group.allreduce(span_of(values), reduction, {.blocking = true});
}

// Every rank's string, in rank order; lengths may differ.
std::vector<std::string> all_gather_bytes(ProcessGroup& group, const std::string& own);

}  // namespace ddprun
