#pragma once

#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/random.h"

namespace ddprun::nn {

// Any shape with the batch first (Srivastava et al. 2014). In evaluation, and with probability 0: the identity. Random
// numbers are those of the samples in a RandomScope; without one they come from the generator, in the order of the
// calls.
class Dropout : public Module {
 public:
  Dropout(double probability, Generator generator);

 private:
  Variable forward(const Variable& input) override;

  double probability_;
  Generator generator_;
};

// With random numbers of its own: a stream that the generator draws.
std::unique_ptr<Dropout> make_dropout(double probability, Generator& generator);

}  // namespace ddprun::nn
