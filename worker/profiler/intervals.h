#pragma once

#include <utility>
#include <vector>

#include "ddprun/worker/profiler/event.h"

namespace ddprun::profiler {

// Begin and end of each.
using Intervals = std::vector<std::pair<Time, Time>>;

// The same time in intervals that are apart, in their order.
Intervals merged(Intervals intervals);
// REQUIRES: merged
Time length(const Intervals& intervals);
// The time that lies in both. REQUIRES: merged
Time common(const Intervals& one, const Intervals& other);

}  // namespace ddprun::profiler
