#include "ddprun/worker/nn/models.h"

#include <string>

#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/nn/layers.h"

namespace ddprun::nn {
namespace {

std::unique_ptr<Sequential> start_flat() {
  auto model = std::make_unique<Sequential>();
  model->add("flatten", std::make_unique<Flatten>());
  return model;
}

std::unique_ptr<Module> make_linear(const ModelOptions& options, Generator& generator) {
  auto model = start_flat();
  model->add("fc", std::make_unique<Linear>(numel(options.input), options.outputs, generator));
  return model;
}

std::unique_ptr<Module> make_mlp(const ModelOptions& options, Generator& generator) {
  auto model = start_flat();
  std::int64_t width = numel(options.input);
  int layer = 1;
  for (std::int64_t hidden : options.hidden) {
    if (hidden < 1) throw make_error(Errc::usage, "model mlp: a hidden layer of {} units is not possible", hidden);
    model->add(fmt::format("fc{}", layer), std::make_unique<Linear>(width, hidden, generator));
    model->add(fmt::format("relu{}", layer), std::make_unique<ReLU>());
    if (options.dropout > 0) {
      const Generator stream(generator.state().seed, generator.next_u64());
      model->add(fmt::format("dropout{}", layer), std::make_unique<Dropout>(options.dropout, stream));
    }
    width = hidden;
    ++layer;
  }
  model->add(fmt::format("fc{}", layer), std::make_unique<Linear>(width, options.outputs, generator));
  return model;
}

std::unique_ptr<Module> make_cnn(const ModelOptions& options, Generator& generator) {
  // 5x5 without padding takes 4, pooling halves: twice.
  const auto shrink = [](std::int64_t size) { return ((size - 4) / 2 - 4) / 2; };
  if (options.input.size() != 3 || options.input[1] < 16 || options.input[2] < 16) {
    throw make_error(Errc::usage,
                     "model cnn: the input has shape {}, not (channels, height, width) of at least 16 x 16",
                     to_string(options.input));
  }
  const std::int64_t features = 20 * shrink(options.input[1]) * shrink(options.input[2]);
  auto model = std::make_unique<Sequential>();
  model->add("conv1", std::make_unique<Conv2d>(options.input[0], 10, 5, generator))
      .add("pool1", std::make_unique<MaxPool2d>(PoolOptions{.kernel = 2}))
      .add("relu1", std::make_unique<ReLU>())
      .add("conv2", std::make_unique<Conv2d>(10, 20, 5, generator))
      .add("pool2", std::make_unique<MaxPool2d>(PoolOptions{.kernel = 2}))
      .add("relu2", std::make_unique<ReLU>())
      .add("flatten", std::make_unique<Flatten>())
      .add("fc1", std::make_unique<Linear>(features, 50, generator))
      .add("relu3", std::make_unique<ReLU>())
      .add("fc2", std::make_unique<Linear>(50, options.outputs, generator));
  return model;
}

struct Entry {
  std::string_view name;
  std::unique_ptr<Module> (*make)(const ModelOptions&, Generator&);
};
constexpr Entry models[] = {{"cnn", make_cnn}, {"mlp", make_mlp}, {"linear", make_linear}};

}  // namespace

std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, Generator& generator) {
  if (options.outputs < 1)
    throw make_error(Errc::usage, "model {}: {} outputs are not possible", name, options.outputs);
  for (const Entry& entry : models) {
    if (entry.name == name) return entry.make(options, generator);
  }
  throw make_error(Errc::usage, "there is no model '{}'; there are: {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : models) names.push_back(entry.name);
  return names;
}

}  // namespace ddprun::nn
