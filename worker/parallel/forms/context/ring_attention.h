#pragma once

#include <cstdint>

#include "worker/autograd/variable.h"
#include "worker/parallel/mesh/counted_group.h"

namespace ddprun {

// Causal self-attention over the positions of all ranks, each of which has its own (zigzag.h): packed_attention() of
// the whole sequence. packed (batch, time, 3 width): the query, key and value of each of this rank's positions; the
// result is (batch, time, width), of the same positions.
//
// Keys and values go round the ring of ranks (Liu et al., "Ring Attention with Blockwise Transformers", 2023). While a
// rank computes what its queries see of one block, the next is on its way; results of blocks are merged by the
// logarithms of their sums. In the backward pass keys and values go round once more, and their gradients with them:
// (ranks - 1) blocks of 2 batch time width elements three times in all. Arithmetic and gradients are in float32 or
// float64, keys and values are sent in their own type.
//
// Collective, forward and backward; the group outlives the tape. Threads: one at a time for a group. Errors:
// Errc::mismatch for shapes that do not fit; those of the group.
Variable ring_attention(const Variable& packed, std::int64_t heads, CountedGroup& group);

}  // namespace ddprun
