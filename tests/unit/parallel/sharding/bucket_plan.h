#pragma once

#include <vector>

#include "common/rounding.h"
#include "worker/parallel/sharding/placement.h"

namespace ddprun::testing {

// Plans slots of tensors in the given order; their placements name their slices (and no FlatShard yet). Offsets are
// multiples of 64 bytes.
inline sharding::BucketLayout plan_bucket_layout(const std::vector<sharding::PlacedTensor>& tensors) {
  sharding::BucketLayout layout;
  for (const auto& tensor : tensors) {
    // The first rank that has the tensor has its first slices, which are the largest.
    int first = 0;
    while (!tensor.exists_at(first)) ++first;
    const std::int64_t largest = tensor.local_elements(first);
    layout.slots.push_back({tensor.spec().name, layout.elements, largest});
    layout.elements += round_up(largest, 64 / static_cast<std::int64_t>(size_of(tensor.spec().dtype)));
  }
  return layout;
}

// Returns whether this rank's part counts in a sum over all ranks: at the lowest of the ranks that have it.
inline bool counts_once_at(const sharding::PlacedTensor& tensor, int rank) {
  return tensor.exists_at(rank) && tensor.holders(rank).front() == rank;
}

}  // namespace ddprun::testing
