#pragma once

#include <optional>
#include <vector>

#include "worker/profiler/event.h"
#include "worker/profiler/step_times.h"

namespace ddprun::profiler {

// The reductions of a step as one rank saw them, in the order of their starts. All ranks' times are since the same
// moment.
struct ReducedStep {
  std::vector<Time> ready;  // when a bucket's gradients were complete
  std::vector<Time> ended;  // when its reduction was seen to have ended
};

// Communication beside the computation, summed over the steps.
struct Overlap {
  Seconds communication{0};  // the undisturbed time of the reductions: for each bucket the least of all steps
  Seconds hideable{0};       // the part of it that a replay with the recorded times of complete gradients hides
  Seconds hidden{0};         // the part of it that was hidden
};

// A reduction begins when all ranks' gradients of its bucket are complete and the one before it has ended; the last
// bucket is complete when nothing is left to compute, so what remains then cannot be hidden. Waiting for a rank that
// computes longer counts for neither. ranks: the steps of each. rank: the one whose ends of reductions count as those.
// Returns nothing where ranks or steps differ in the number of reductions, or have none. A pure function.
std::optional<Overlap> overlap_of(const std::vector<std::vector<ReducedStep>>& ranks, std::size_t rank = 0);

}  // namespace ddprun::profiler
