#include "ddprun/worker/nn/layers.h"

#include <cmath>

#include "ddprun/worker/autograd/operation.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/nn/random_scope.h"

namespace ddprun::nn {
namespace {

Tensor uniform_by_fan_in(Shape shape, std::int64_t fan_in, Generator& generator) {
  Tensor values = Tensor::empty(std::move(shape));
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  fill_uniform(values, -bound, bound, generator);
  return values;
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, Generator& generator, bool bias)
    : weight_(register_parameter("weight", uniform_by_fan_in({out, in}, in, generator))) {
  if (bias) bias_ = register_parameter("bias", uniform_by_fan_in({out}, in, generator));
}

Variable Linear::forward(const Variable& input) {
  return linear(input, weight_, bias_);
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator, Conv2dOptions options)
    : options_{.stride = options.stride, .padding = options.padding},
      weight_(
          register_parameter("weight", uniform_by_fan_in({out, in, kernel, kernel}, in * kernel * kernel, generator))) {
  if (options.bias) bias_ = register_parameter("bias", uniform_by_fan_in({out}, in * kernel * kernel, generator));
}

Variable Conv2d::forward(const Variable& input) {
  return conv2d(input, weight_, bias_, options_);
}

Variable MaxPool2d::forward(const Variable& input) {
  return max_pool2d(input, options_);
}

BatchNorm::BatchNorm(std::int64_t channels, NormOptions options)
    : options_(options),
      weight_(register_parameter("weight", Tensor::full({channels}, 1))),
      bias_(register_parameter("bias", Tensor::zeros({channels}))),
      running_mean_(register_buffer("running_mean", Tensor::zeros({channels}))),
      running_var_(register_buffer("running_var", Tensor::full({channels}, 1))),
      batches_(register_buffer("num_batches_tracked", Tensor::zeros({}, DType::int64))) {}

Variable BatchNorm::forward(const Variable& input) {
  if (training()) ++*Tensor(batches_.value()).data<std::int64_t>();
  return batch_norm(input, weight_, bias_, running_mean_.value(), running_var_.value(),
                    {.training = training(), .momentum = options_.momentum, .eps = options_.eps});
}

Variable ReLU::forward(const Variable& input) {
  return relu(input);
}

Dropout::Dropout(double probability, Generator generator) : probability_(probability), generator_(generator) {}

Variable Dropout::forward(const Variable& input) {
  if (!training()) return input;
  if (const SampleKeys* keys = RandomScope::current())
    return dropout(input, probability_, keys->seed,
                   streams_of_rows(*keys, autograd::current_scope(), input.value().size(0)));
  return dropout(input, probability_, generator_);
}

Variable Flatten::forward(const Variable& input) {
  return flatten(input);
}

Sequential& Sequential::add(const std::string& name, std::unique_ptr<Module> module) {
  order_.push_back(&register_module(name, std::move(module)));
  return *this;
}

Variable Sequential::forward(const Variable& input) {
  Variable value = input;
  for (Module* module : order_) value = (*module)(value);
  return value;
}

}  // namespace ddprun::nn
