#pragma once

#include <cstddef>

#include "worker/comm/process_group.h"

namespace ddprun {

// A range of a bucket's elements.
struct Shard {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

// The part of a bucket that a rank owns where optimizer state is sharded (ZeRO): contiguous, in rank order, of equal
// size but for the last ones, which may be smaller or empty. Parts begin on borders of 16 elements, for vectors. This
// number is part of the format of checkpoints: placements.json names buckets and ranks, and not where parts begin
// (worker/checkpoint/FORMAT.md). Pure functions.
Shard shard_of(std::size_t elements, int rank, int ranks);
Counts shard_counts(std::size_t elements, int ranks);

// Returns the elements that two ranges have in common, or an empty range.
Shard intersection(const Shard& a, const Shard& b);

}  // namespace ddprun
