#pragma once

#include <cstdint>

#include "worker/nn/layers/attention.h"
#include "worker/nn/layers/container.h"
#include "worker/nn/layers/norm.h"

// The encoder of a transformer (Vaswani et al. 2017), with PyTorch's names and order of parameters: weights of
// nn.TransformerEncoder load without conversion.
namespace ddprun::nn {

struct TransformerEncoderOptions {
  std::int64_t width = 512;  // features of a position; a multiple of the heads
  std::int64_t heads = 8;
  std::int64_t feedforward = 2048;  // features between the two linear layers
  double dropout = 0;               // applied to attention weights, between the linear layers, and to both results
  bool gelu = false;                // the activation between the linear layers is gelu, otherwise relu
  bool norm_first = false;          // normalizes the inputs of attention and linear layers; otherwise the residual sums
};

// (batch, time, width) -> the same.
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(const TransformerEncoderOptions& options, Generator& generator);

 private:
  Variable forward(const Variable& input) override;
  Part part() const override { return Part::block; }
  Variable attend(const Variable& input);
  Variable feed_forward(const Variable& input);

  bool gelu_, norm_first_;
  SelfAttention& self_attn_;
  Linear &linear1_, &linear2_;
  LayerNorm &norm1_, &norm2_;
  Dropout &dropout_, &dropout1_, &dropout2_;
};

// Layers one after the other, then with norm_first a normalization. (batch, time, width) -> the same.
class TransformerEncoder : public Module {
 public:
  TransformerEncoder(std::int64_t layers, const TransformerEncoderOptions& options, Generator& generator);

 private:
  Variable forward(const Variable& input) override;

  Sequential& layers_;
  LayerNorm* norm_ = nullptr;
};

}  // namespace ddprun::nn
