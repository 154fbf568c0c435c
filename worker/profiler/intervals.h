#pragma once

#include <utility>
#include <vector>

#include "worker/profiler/event.h"

namespace ddprun::profiler {

// The begin and end of each.
using Intervals = std::vector<std::pair<Time, Time>>;

// Returns the same time in intervals that are apart, in their order.
Intervals merged(Intervals intervals);
// Returns their total time. REQUIRES: merged
Time length(const Intervals& intervals);
// Returns the time that lies in both. REQUIRES: merged
Time common(const Intervals& one, const Intervals& other);

}  // namespace ddprun::profiler
