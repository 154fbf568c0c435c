#pragma once

#include <utility>

#include "worker/nn/layers/linear.h"
#include "worker/nn/sample_part.h"

namespace ddprun::nn {

// (batch, time) -> (time, width): a row for each position, whatever the tokens. Throws Errc::mismatch for an input of
// another shape, or with more positions than there are rows.
class PositionEmbedding : public Embedding {
 public:
  using Embedding::Embedding;

  // Sets which positions of the samples the results have, by the number of positions of the inputs: for ranks that
  // divide them.
  void set_sample_part(SamplePart part) { sample_part_ = std::move(part); }
  const SamplePart& sample_part() const { return sample_part_; }

 private:
  Variable forward(const Variable& tokens) override;

  SamplePart sample_part_;
};

}  // namespace ddprun::nn
