#include <fmt/format.h>

#include "common/error.h"
#include "worker/nn/layers.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {

std::unique_ptr<Module> make_mlp(const ModelOptions& options, Generator& generator) {
  auto model = std::make_unique<Sequential>();
  model->add("flatten", std::make_unique<Flatten>());
  std::int64_t width = numel(options.input);
  int layer = 1;
  for (std::int64_t hidden : options.hidden) {
    if (hidden < 1) throw make_error(Errc::usage, "model mlp: a hidden layer of {} units is not possible", hidden);
    model->add(fmt::format("fc{}", layer), std::make_unique<Linear>(width, hidden, generator));
    model->add(fmt::format("relu{}", layer), std::make_unique<ReLU>());
    if (options.dropout > 0) model->add(fmt::format("dropout{}", layer), make_dropout(options.dropout, generator));
    width = hidden;
    ++layer;
  }
  model->add(fmt::format("fc{}", layer), std::make_unique<Linear>(width, options.outputs, generator));
  return model;
}

}  // namespace ddprun::nn
