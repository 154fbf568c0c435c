// Two stages of convolution 5x5, pooling by 2 and relu, then two linear layers: with 10 and 20 channels (cnn; with
// batch normalization cnn_bn), and with 20 and 20 channels and log-probabilities as output (conv_net).
#include <fmt/format.h>

#include "worker/nn/layers.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {
namespace {

struct CnnOptions {
  std::int64_t channels[2];
  bool batch_norm = false;
  bool log_softmax = false;
};

void add_stage(Sequential& model, int number, std::int64_t in, std::int64_t out, bool batch_norm,
               Generator& generator) {
  model.add(fmt::format("conv{}", number), std::make_unique<Conv2d>(in, out, 5, generator));
  if (batch_norm) model.add(fmt::format("bn{}", number), std::make_unique<BatchNorm>(out));
  model.add(fmt::format("pool{}", number), std::make_unique<MaxPool2d>(PoolOptions{.kernel = 2}))
      .add(fmt::format("relu{}", number), std::make_unique<ReLU>());
}

std::unique_ptr<Module> make(const CnnOptions& cnn, const ModelOptions& options, Generator& generator) {
  // 5x5 without padding takes 4, pooling halves: twice.
  const auto shrink = [](std::int64_t size) { return ((size - 4) / 2 - 4) / 2; };
  const std::int64_t features = cnn.channels[1] * shrink(options.input[1]) * shrink(options.input[2]);
  auto model = std::make_unique<Sequential>();
  add_stage(*model, 1, options.input[0], cnn.channels[0], cnn.batch_norm, generator);
  add_stage(*model, 2, cnn.channels[0], cnn.channels[1], cnn.batch_norm, generator);
  model->add("flatten", std::make_unique<Flatten>())
      .add("fc1", std::make_unique<Linear>(features, 50, generator))
      .add("relu3", std::make_unique<ReLU>())
      .add("fc2", std::make_unique<Linear>(50, options.outputs, generator));
  if (cnn.log_softmax) model->add("log_softmax", std::make_unique<LogSoftmax>());
  return model;
}

}  // namespace

std::unique_ptr<Module> make_cnn(const ModelOptions& options, Generator& generator) {
  return make({.channels = {10, 20}}, options, generator);
}

std::unique_ptr<Module> make_cnn_bn(const ModelOptions& options, Generator& generator) {
  return make({.channels = {10, 20}, .batch_norm = true}, options, generator);
}

std::unique_ptr<Module> make_conv_net(const ModelOptions& options, Generator& generator) {
  return make({.channels = {20, 20}, .log_softmax = true}, options, generator);
}

}  // namespace ddprun::nn
