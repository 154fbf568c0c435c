#include "ddprun/worker/nn/layers/dropout.h"

#include "ddprun/worker/autograd/operation.h"
#include "ddprun/worker/autograd/ops/activation.h"
#include "ddprun/worker/nn/random_scope.h"

namespace ddprun::nn {

Dropout::Dropout(double probability, Generator generator) : probability_(probability), generator_(generator) {}

Variable Dropout::forward(const Variable& input) {
  if (!training() || probability_ == 0) return input;
  if (const SampleKeys* keys = RandomScope::current())
    return dropout(input, probability_, keys->seed,
                   streams_of_rows(*keys, autograd::current_scope(), input.value().size(0)));
  return dropout(input, probability_, generator_);
}

std::unique_ptr<Dropout> make_dropout(double probability, Generator& generator) {
  return std::make_unique<Dropout>(probability, Generator(generator.state().seed, generator.next_u64()));
}

}  // namespace ddprun::nn
