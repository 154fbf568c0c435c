#pragma once

#include "tests/bench/collectives/operations.h"
#include "tests/bench/collectives/processor_binding.h"
#include "tests/bench/collectives/sleeping_barrier.h"
#include "tests/bench/collectives/stage.h"
#include "tests/bench/collectives/subject.h"
#include "tests/bench/latency.h"

namespace ddprun::bench {

// Times subjects beside each other: in turns, a few calls each, so that what disturbs the machine disturbs all of them.
// Before each call every rank writes its input anew and the ranks meet; at last the results are compared with what is
// right. A rank is bound to its processor and waits for the others awake, but where a subject has threads of its own.
class Comparison {
 public:
  struct Options {
    int rank = 0;
    DType dtype = DType::float32;
    double seconds = 0.2;  // a subject, at most, but for a few calls at least
  };

  Comparison(Stage& stage, SleepingBarrier& barrier, const Operation& operation, const Options& options)
      : stage_(stage), barrier_(barrier), operation_(operation), options_(options), binding_(options.rank) {
    binding_.bind(true);
  }

  // For each subject the times of its calls, of all ranks.
  std::vector<Latencies> measure(const Subjects& subjects, std::size_t bytes);
  // What measure() makes of a size: whole elements and equal parts.
  std::size_t rounded(std::size_t bytes) const;

 private:
  void calls(Subject& subject, std::size_t bytes, int count, Latencies* times);
  int agreed_count(Subject& subject, std::size_t bytes);
  void gather(Latencies& times);
  void check(Subject& subject, std::size_t bytes) const;

  Stage& stage_;
  SleepingBarrier& barrier_;
  const Operation& operation_;
  const Options options_;
  ProcessorBinding binding_;
};

}  // namespace ddprun::bench
