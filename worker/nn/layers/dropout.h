#pragma once

#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/random.h"

namespace ddprun::nn {

// Takes any shape with the batch first (Srivastava et al. 2014). In evaluation, and with probability 0, it is the
// identity. Random numbers are those of the samples in a RandomScope; without one they come from the generator, in the
// order of the calls.
class Dropout : public Module {
 public:
  Dropout(double probability, Generator generator);

  // From now on inputs, a row for each sample, are this one of so many equal parts of the sample's elements, and get
  // the numbers that they have in the whole: for ranks that each have a part of a tensor. Only with a RandomScope
  // (Errc::usage otherwise).
  void set_part(int part, int parts);
  // Returns whether it returns its input as it is.
  bool is_identity() const { return !training() || probability_ == 0; }

 private:
  Variable forward(const Variable& input) override;

  double probability_;
  Generator generator_;
  int part_ = 0, parts_ = 1;
};

// Makes one with random numbers of its own: a stream that the generator draws.
std::unique_ptr<Dropout> make_dropout(double probability, Generator& generator);

}  // namespace ddprun::nn
