#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"
#include "worker/reducer/bucketing.h"

namespace ddprun {

// Parameters, and the buckets of their gradients.
struct GradientBuckets {
  std::vector<std::pair<std::string, Variable>> parameters;
  std::vector<Bucket> buckets;
};

// Parameters whose buckets are sharded among ranks (shards.h), and this rank's part of each. These are handles: the
// memory is that of the tensors.
//
// A value; the groups outlive it. Threads: those of the tensors. Errors: none.
struct ShardedBuckets {
  std::vector<std::pair<std::string, Variable>> parameters;
  std::vector<Bucket> buckets;
  // By bucket: the ranks that shard it, and this rank's elements, one dimension each.
  std::vector<ProcessGroup*> groups;
  std::vector<Tensor> values;
  std::vector<Tensor> gradients;
  // Returns whether a pass of the last step has reached a parameter at some rank; empty: each pass reaches all.
  std::function<bool(std::size_t parameter)> used = {};
};

}  // namespace ddprun
