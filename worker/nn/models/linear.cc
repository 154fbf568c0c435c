// One linear layer, and two in a row without a function between them.
#include "worker/nn/layers.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {

std::unique_ptr<Module> make_linear(const ModelOptions& options, Generator& generator) {
  auto model = std::make_unique<Sequential>();
  model->add("flatten", std::make_unique<Flatten>())
      .add("fc", std::make_unique<Linear>(numel(options.input), options.outputs, generator));
  return model;
}

std::unique_ptr<Module> make_linear_pair(const ModelOptions& options, Generator& generator) {
  constexpr std::int64_t width = 20;
  auto model = std::make_unique<Sequential>();
  model->add("flatten", std::make_unique<Flatten>())
      .add("fc1", std::make_unique<Linear>(numel(options.input), width, generator))
      .add("fc2", std::make_unique<Linear>(width, options.outputs, generator));
  return model;
}

}  // namespace ddprun::nn
