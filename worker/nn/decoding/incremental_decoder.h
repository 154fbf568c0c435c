#pragma once

#include <cstdint>
#include <vector>

#include "worker/nn/layers/attention.h"
#include "worker/nn/module.h"

namespace ddprun::nn {

// Computes the positions of a sequence that are new, and keeps the keys and values of those before, so that a token
// costs one position and not all of them again. For models in which only CausalSelfAttention looks at several positions
// and whose table "wpe" embeds the positions: gpt without experts, whose capacity is shared by the tokens of a call.
//
// Ownership: the model outlives this object, and computes whole sequences again after it.
// Threads: those of the model.
// Errors: the constructor throws Errc::usage for a model without causal attention or without "wpe".
class IncrementalDecoder {
 public:
  // positions: the length of the longest sequence.
  IncrementalDecoder(Module& model, std::int64_t positions);
  ~IncrementalDecoder();
  IncrementalDecoder(const IncrementalDecoder&) = delete;
  IncrementalDecoder& operator=(const IncrementalDecoder&) = delete;

  // Takes tokens (1, time) that follow those of earlier calls; returns what the model returns at their positions, but
  // for rounding. REQUIRES: a NoGradScope; length() + time <= positions
  Variable operator()(const Tensor& tokens);
  // The number of tokens so far.
  std::int64_t length() const { return length_; }

 private:
  struct Layer {
    CausalSelfAttention* attention;
    Tensor keys = {}, values = {};  // (1, heads, positions, width); undefined before the first call
  };
  Variable attend(Layer& layer, const Variable& packed, std::int64_t heads) const;

  Module& model_;
  Module& position_embedding_;
  const std::int64_t positions_;
  std::vector<Layer> layers_;
  std::int64_t length_ = 0;
};

}  // namespace ddprun::nn
