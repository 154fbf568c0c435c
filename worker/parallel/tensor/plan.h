#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/worker/nn/module.h"

namespace ddprun {

// What tensor parallelism does with a module.
enum class TensorStyle {
  heads,                 // CausalSelfAttention: each rank has some of the heads
  column,                // Linear, Conv1D: each rank has some of the outputs
  row,                   // likewise of the inputs
  vocabulary_embedding,  // Embedding: each rank has the entries of some indices
  vocabulary_head,       // an output layer with the weight of such an embedding
  dropout,               // each rank's input is its part of a sample's elements
  own_positions,         // with Undivided::positions: the result is this rank's positions
  partial_gradients,     // likewise: parameters that see this rank's positions alone
};

struct TensorRule {
  std::string module;  // path
  TensorStyle style;
  std::int64_t pieces = 1;  // column: Slicing::pieces
};

// In this order. PyTorch's parallelize_module() calls it a parallelize_plan.
using TensorPlan = std::vector<TensorRule>;

// Whether what is not divided is whole at each rank, or a range of its positions alone: norms, dropout and sums of a
// transformer are then computed once, and kept once for the backward pass (sequence parallelism: Korthikanti et al.,
// 2022), for the same traffic.
enum class Undivided { whole, positions };

// The plan of a built-in model. Layers in pairs: what the first, by columns, gives each rank is what the second, by
// rows, takes; in between is what works element by element. Throws Errc::usage for a model without such layers, and
// for positions of a model that has none.
TensorPlan tensor_plan(std::string_view model_name, nn::Module& model, Undivided undivided = Undivided::whole);

}  // namespace ddprun
