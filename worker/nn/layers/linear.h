#pragma once

#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/random.h"

namespace ddprun::nn {

// (..., in) -> (..., out). Weight and bias are uniform within 1 / sqrt(in) at first.
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, Generator& generator, bool bias = true);

 private:
  Variable forward(const Variable& input) override;

  Variable weight_;  // (out, in)
  Variable bias_;    // (out)
};

// int64 indices (...) -> (..., width). The weight is normal with the given deviation at first.
class Embedding : public Module {
 public:
  Embedding(std::int64_t entries, std::int64_t width, Generator& generator, double deviation = 1);

 private:
  Variable forward(const Variable& input) override;

  Variable weight_;  // (entries, width)
};

}  // namespace ddprun::nn
