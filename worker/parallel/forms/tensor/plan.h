#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/nn/module.h"

namespace ddprun {

// The treatment of a module by tensor parallelism.
enum class TensorStyle {
  heads,                 // CausalSelfAttention: each rank has some of the heads
  column,                // Linear, Conv1D: each rank has some of the outputs
  row,                   // Linear, Conv1D: each rank has some of the inputs
  vocabulary_embedding,  // Embedding: each rank has the entries of some indices
  vocabulary_head,       // an output layer with the weight of such an embedding
  experts,               // MixtureOfExperts: each rank has some of the features between the two layers of each expert
  dropout,               // each rank's input is its part of a sample's elements
  own_positions,         // with Unsharded::positions: the result is this rank's positions
  partial_gradients,     // with Unsharded::positions: parameters that see only this rank's positions
};

struct TensorRule {
  std::string module;  // path
  TensorStyle style;
  std::int64_t pieces = 1;  // column: sharding::Shard::pieces
};

// Applied in this order. PyTorch's parallelize_module() calls it a parallelize_plan.
using TensorPlan = std::vector<TensorRule>;

// Says whether what is not sharded is whole at each rank, or only a range of its positions: norms, dropout and sums of
// a transformer are then computed once, and kept once for the backward pass (sequence parallelism: Korthikanti et al.,
// 2022), for the same traffic.
enum class Unsharded { whole, positions };

// Returns the plan of a built-in model. Layers form pairs: the first, by columns, gives each rank what the second, by
// rows, takes; operations in between work element by element. Throws Errc::usage for a model without such layers, and
// for positions of a model that has none.
TensorPlan tensor_plan(std::string_view model_name, nn::Module& model, Unsharded unsharded = Unsharded::whole);

}  // namespace ddprun
