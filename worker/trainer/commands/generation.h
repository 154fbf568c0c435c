#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "worker/nn/module.h"
#include "worker/tensor/random.h"

namespace ddprun::trainer {

struct SamplingOptions {
  double temperature = 1;  // 0: always the most likely token
  std::int64_t top_k = 0;  // chooses among so many of the most likely tokens; 0 means all
};

// Draws a token with the probabilities softmax(logits / temperature) of the tokens that top_k leaves. Among tokens that
// are equally likely those with lower numbers come first.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, Generator& generator);

struct GenerationOptions {
  std::int64_t tokens = 0;   // the number to generate
  std::int64_t context = 0;  // the most tokens that the model sees
  // True: the model computes only new positions (nn::IncrementalDecoder), until the context is full.
  bool incremental = false;
  SamplingOptions sampling;
};

// Appends tokens, one at a time, each a function of the last `context` before it, and calls token() with each.
// The model maps (1, time) int64 to (1, time, vocabulary); it is put into evaluation mode. prompt: not empty.
void generate_tokens(nn::Module& model, std::vector<std::int64_t> prompt, const GenerationOptions& options,
                     Generator& generator, const std::function<void(std::int64_t)>& token);

}  // namespace ddprun::trainer
