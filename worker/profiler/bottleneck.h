#pragma once

#include <string>

#include "worker/profiler/summary.h"

namespace ddprun::profiler {

enum class Cause { slow_rank, data, communication, optimizer, launches, batch_size, computation };

struct Bottleneck {
  Cause cause = Cause::computation;
  double share = 0;      // the part of a step's time that it costs, 0 .. 1
  std::string sentence;  // has the setting that addresses it
};

// Finds what costs most of the time that a setting or another machine could save. What all ranks have in common counts
// for data, communication, optimizer and launches (of operations on a device); what one rank has more of makes it a
// slow rank. A pure function. REQUIRES: steps and ranks are there
Bottleneck bottleneck_of(const Summary& summary);

}  // namespace ddprun::profiler
