#include "ddprun/worker/nn/layers/dropout.h"

#include <algorithm>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/operation.h"
#include "ddprun/worker/autograd/ops/activation.h"
#include "ddprun/worker/nn/random_scope.h"

namespace ddprun::nn {

Dropout::Dropout(double probability, Generator generator) : probability_(probability), generator_(generator) {}

Variable Dropout::forward(const Variable& input) {
  if (is_identity()) return input;
  if (const SampleKeys* keys = RandomScope::current()) {
    const Tensor& x = input.value();
    const auto row = static_cast<std::uint64_t>(x.numel() / std::max<std::int64_t>(1, x.size(0)));
    return dropout(input, probability_, keys->seed, streams_of_rows(*keys, autograd::current_scope(), x.size(0)),
                   static_cast<std::uint64_t>(part_) * row);
  }
  if (parts_ > 1) throw Error(Errc::usage, "dropout of a part of a sample needs a RandomScope");
  return dropout(input, probability_, generator_);
}

void Dropout::set_part(int part, int parts) {
  part_ = part;
  parts_ = parts;
}

std::unique_ptr<Dropout> make_dropout(double probability, Generator& generator) {
  return std::make_unique<Dropout>(probability, Generator(generator.state().seed, generator.next_u64()));
}

}  // namespace ddprun::nn
