#pragma once

#include <cstdint>
#include <vector>

#include "worker/tensor/tensor.h"

namespace ddprun::nn {

// Numbers by expert.
using ExpertCounts = std::vector<std::int64_t>;

// The assignment of tokens to experts (Shazeer et al., "Outrageously Large Neural Networks", 2017).
struct Routing {
  Tensor experts;  // int64 (tokens, k): those of each token, most probable first; of equal ones that of the lower index
  ExpertCounts chosen;  // choices of each expert
  // The rows that the experts compute: those of expert 0, then those of expert 1, ..., each in the order of tokens.
  ExpertCounts counts;
  Tensor tokens;  // int64 (rows): the token of each row
  // int64 (tokens * k): the row of each choice; 0 for one that is dropped.
  Tensor rows;
  Tensor kept;  // like the probabilities, (tokens, k): 1, or 0 where the choice is dropped
  std::int64_t dropped = 0;
};

// Routes by a router's probabilities, (tokens, experts), contiguous float32 or float64. An expert takes at most
// capacity choices, 0 being no limit: first choices before second ones, and tokens in their order (GShard: Lepikhin et
// al., 2020). A pure function, computed on the host; the tensors are on the device of the probabilities. REQUIRES: 1 <=
// per_token <= experts
Routing route(const Tensor& probabilities, std::int64_t per_token, std::int64_t capacity);

// Returns how many choices an expert takes: factor times an equal share of them, rounded up; 0 for the factor 0.
std::int64_t expert_capacity(double factor, std::int64_t tokens, std::int64_t per_token, std::int64_t experts);

}  // namespace ddprun::nn
