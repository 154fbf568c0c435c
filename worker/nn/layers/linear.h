#pragma once

#include <vector>

#include "worker/nn/layers/weighted_layer.h"
#include "worker/tensor/random.h"

namespace ddprun::nn {

// (..., in) -> (..., out). Weight and bias are initialized uniformly within 1 / sqrt(in).
// Shapes: weight (out, in), bias (out).
class Linear : public WeightedLayer {
 public:
  Linear(std::int64_t in, std::int64_t out, Generator& generator, bool bias = true);
  Variable apply(const Variable& input, const Variable& weight, const Variable& bias) const override;
};

// (..., in) -> (..., out). GPT-2's linear layer: the weight is stored as (in, out), the transpose of Linear's. It is
// initialized as normal with the given deviation, the bias as zero.
class Conv1D : public WeightedLayer {
 public:
  Conv1D(std::int64_t in, std::int64_t out, double weight_deviation, bool bias, Generator& generator);
  std::size_t output_dimension() const override { return 1; }
  Variable apply(const Variable& input, const Variable& weight, const Variable& bias) const override;

 private:
  // Takes a second input, of the result's shape: the residual stream, to which the result is added.
  std::vector<Variable> forward_all(const std::vector<Variable>& inputs) override;
};

// int64 indices (...) -> (..., width). The weight is initialized as normal with the given deviation.
class Embedding : public Module {
 public:
  Embedding(std::int64_t entries, std::int64_t width, Generator& generator, double deviation = 1);

 private:
  Variable forward(const Variable& input) override;

  Variable weight_;  // (entries, width)
};

}  // namespace ddprun::nn
