#pragma once

#include "worker/comm/process_group.h"

namespace ddprun {

// The ranks that have parts of a bucket; shards.h says which ranges. Buckets of one model may have different ones:
// those of experts are sharded among the ranks that have the same experts.
//
// A value; the groups outlive it.
struct BucketRanks {
  ProcessGroup* shard = nullptr;      // the ranks that divide the bucket
  ProcessGroup* replicate = nullptr;  // those that have the same part, one in each shard group
  int divisor = 1;                    // the average of gradients is their sum over all these ranks divided by it
};

}  // namespace ddprun
