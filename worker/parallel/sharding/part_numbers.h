#pragma once

#include <vector>

#include "worker/parallel/sharding/placement.h"

namespace ddprun::sharding {

// Returns by rank the number of its part of all these tensors together, from 0: ranks that have the same part of each
// have the same number. Pure. ranks: those of the placements' mesh.
std::vector<int> part_numbers(const std::vector<PlacedTensor>& tensors, int ranks);

}  // namespace ddprun::sharding
