#include "tests/bench/collectives/processor_binding.h"

#include "tests/bench/collectives/shared_mapping.h"

namespace ddprun::bench {

ProcessorBinding::ProcessorBinding(int rank) : rank_(rank) {
  CPU_ZERO(&all_);
  ::sched_getaffinity(0, sizeof all_, &all_);
}

void ProcessorBinding::bind(bool bound) {
  if (bound == bound_) return;
  if (bound) {
    pin_to_processor(rank_);
  } else {
    ::sched_setaffinity(0, sizeof all_, &all_);
  }
  bound_ = bound;
}

}  // namespace ddprun::bench
