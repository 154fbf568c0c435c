#include "worker/nn/layers/convolution.h"

#include "worker/nn/layers/initial.h"

namespace ddprun::nn {
namespace {

Tensor initial_weight(std::int64_t in, std::int64_t out, std::int64_t kernel, ConvWeights kind, Generator& generator) {
  const Shape shape{out, in, kernel, kernel};
  const std::int64_t area = kernel * kernel;
  return kind == ConvWeights::kaiming_normal ? kaiming_normal(shape, out * area, generator)
                                             : uniform_by_fan_in(shape, in * area, generator);
}

}  // namespace

Conv2d::Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
               const Conv2dOptions& options)
    : options_{.stride = options.stride, .padding = options.padding} {
  set_weight(initial_weight(in, out, kernel, options.weights, generator));
  if (options.bias) set_bias(uniform_by_fan_in({out}, in * kernel * kernel, generator));
}

Variable Conv2d::apply(const Variable& input, const Variable& weight, const Variable& bias) const {
  return conv2d(input, weight, bias, options_);
}

}  // namespace ddprun::nn
