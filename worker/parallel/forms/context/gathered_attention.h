#pragma once

#include <cstdint>

#include "worker/autograd/variable.h"
#include "worker/nn/layers/dropout.h"
#include "worker/parallel/mesh/counted_group.h"

namespace ddprun {

// Computes as ring_attention(), with dropout of the attention's weights: each rank has those of its queries by the
// keys of all ranks, positions / ranks x positions of each head, for the numbers that they have in a whole sample.
// Keys and values are gathered, and their gradients summed at their ranks: (ranks - 1) blocks of 2 batch time width
// elements twice in all.
//
// Collective, forward and backward; group and dropout outlive the tape. Threads, errors: those of ring_attention().
Variable gathered_attention(const Variable& packed, std::int64_t heads, CountedGroup& group,
                            nn::Dropout& weights_dropout);

}  // namespace ddprun
