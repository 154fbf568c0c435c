#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/forms/pipeline/schedule.h"
#include "worker/parallel/forms/pipeline/stage.h"
#include "worker/parallel/sharding/sharded_buckets.h"

namespace ddprun::pipeline {

// Parameters that stages of several ranks use, such as the embedding and the head of a GPT: each of these ranks has a
// copy. Copies begin equal, and stay so: after each step each gets the sum of all their gradients.
//
// Ownership: the group outlives it. Threads: one at a time. Errors: those of the group.
class TiedParameters {
 public:
  // stages: all of the model's. The schedule says over which ranks they are spread.
  TiedParameters(const std::vector<Stage>& stages, const Schedule& schedule, ProcessGroup& group);

  // Called by all ranks; returns the number of bytes that this one has sent. sharded: set if the gradients are sharded
  // among the ranks that have the same stages, each of which sums its part; each tied parameter has a bucket of its own
  // then, so that the parts are the same ranges at all stages. Null if they are whole.
  std::uint64_t sum_gradients(const ShardedBuckets* sharded) const;

 private:
  struct Tied {
    Variable parameter;
    std::vector<int> ranks;  // ascending
  };

  std::vector<Tied> tied_;  // those that this rank is among
  ProcessGroup& group_;
};

}  // namespace ddprun::pipeline
