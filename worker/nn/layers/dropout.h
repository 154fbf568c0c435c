#pragma once

#include <memory>
#include <utility>

#include "worker/nn/module.h"
#include "worker/nn/random_scope.h"
#include "worker/nn/sample_part.h"
#include "worker/tensor/random.h"

namespace ddprun::nn {

// Takes any shape with the batch first (Srivastava et al. 2014). In evaluation, and with probability 0, it is the
// identity. Random numbers are those of the samples in a RandomScope; without one they come from the generator, in the
// order of the calls.
class Dropout : public Module {
 public:
  Dropout(double probability, Generator generator);

  // Sets which part of each sample's elements the inputs have, a row for each sample: elements get the numbers that
  // they have in the whole. For ranks that each have a part of a tensor. Only with a RandomScope (Errc::usage
  // otherwise).
  void set_sample_part(SamplePart part) { sample_part_ = std::move(part); }
  const SamplePart& sample_part() const { return sample_part_; }
  // Returns whether it returns its input as it is.
  bool is_identity() const { return !training() || probability_ == 0; }

 private:
  Variable forward(const Variable& input) override;
  Variable drop(const Variable& input, const SampleKeys& keys) const;

  double probability_;
  Generator generator_;
  SamplePart sample_part_;
};

// Makes one with random numbers of its own: a stream that the generator draws.
std::unique_ptr<Dropout> make_dropout(double probability, Generator& generator);

}  // namespace ddprun::nn
