#pragma once

#include "tests/bench/collectives/operations.h"
#include "tests/bench/collectives/processor_binding.h"
#include "tests/bench/collectives/shared_mapping.h"
#include "tests/bench/collectives/sleeping_barrier.h"
#include "tests/bench/collectives/subject.h"
#include "tests/bench/latency.h"

namespace ddprun::bench {

// Measures subjects side by side: in turns, a few calls each, so that a disturbance of the machine affects all of them.
// Before each call every rank writes its input anew and calls a barrier; at the end the results are verified. A rank is
// bound to its processor and spins in the barrier, unless the subject has threads of its own.
class Comparison {
 public:
  struct Options {
    int rank = 0;
    DType dtype = DType::float32;
    double seconds = 0.2;  // limit for one subject, but at least a few calls
  };

  Comparison(SharedMapping& mapping, SleepingBarrier& barrier, const Operation& operation, const Options& options)
      : mapping_(mapping), barrier_(barrier), operation_(operation), options_(options), binding_(options.rank) {
    binding_.bind(true);
  }

  // The times of each subject's calls at all ranks.
  std::vector<Latencies> measure(const Subjects& subjects, std::size_t bytes);
  // The size that measure() uses for a size: whole elements in equal parts.
  std::size_t rounded(std::size_t bytes) const;

 private:
  void calls(Subject& subject, std::size_t bytes, int count, Latencies* times);
  int calls_per_turn(Subject& subject, std::size_t bytes);
  void gather(Latencies& times);
  void check(Subject& subject, std::size_t bytes) const;

  SharedMapping& mapping_;
  SleepingBarrier& barrier_;
  const Operation& operation_;
  const Options options_;
  ProcessorBinding binding_;
};

}  // namespace ddprun::bench
