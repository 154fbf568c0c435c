#include "ddprun/worker/autograd/ops/norm.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/tape.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {
namespace {

struct Extent {
  std::int64_t outer, channels, inner;
};

Extent extent_of(const Variable& input) {
  const Shape& shape = input.shape();
  if (shape.size() < 2) {
    throw make_error(Errc::mismatch, "batch_norm: the input has shape {}, not (batch, channels, ...)",
                     to_string(shape));
  }
  return {shape[0], shape[1], numel(Shape(shape.begin() + 2, shape.end()))};
}

void check_channels(const char* what, const Tensor& tensor, const Variable& input) {
  if (tensor.shape() == Shape{input.shape()[1]} && tensor.dtype() == input.dtype()) return;
  throw make_error(Errc::mismatch, "batch_norm: {}, {} of shape {}, does not fit a {} input of shape {}", what,
                   name_of(tensor.dtype()), to_string(tensor.shape()), name_of(input.dtype()),
                   to_string(input.shape()));
}

// running += momentum (batch - running)
void update_running(Tensor& running, const Tensor& batch, double momentum, double correction) {
  Tensor fresh = kernels::scale(batch, momentum * correction);
  running.copy_from(kernels::add(kernels::scale(running, 1 - momentum), fresh));
}

kernels::NormStatistics statistics_of(const Variable& input, const Extent& extent, Tensor& running_mean,
                                      Tensor& running_var, const BatchNormOptions& options) {
  if (!options.training) return {running_mean, kernels::inverse_deviation(running_var, options.eps)};
  const auto count = static_cast<double>(extent.outer * extent.inner);
  if (count < 2) {
    throw make_error(Errc::usage, "batch_norm: training needs more than one value a channel; the input has shape {}",
                     to_string(input.shape()));
  }
  Tensor variance;
  auto statistics = kernels::batch_statistics(input.value(), extent.outer, extent.inner, options.eps, variance);
  update_running(running_mean, statistics.mean, options.momentum, 1);
  update_running(running_var, variance, options.momentum, count / (count - 1));
  return statistics;
}

}  // namespace

Variable batch_norm(const Variable& input, const Variable& weight, const Variable& bias, Tensor running_mean,
                    Tensor running_var, const BatchNormOptions& options) {
  const Extent extent = extent_of(input);
  check_channels("the weight", weight.value(), input);
  check_channels("the bias", bias.value(), input);
  check_channels("the running mean", running_mean, input);
  check_channels("the running variance", running_var, input);
  const auto statistics = statistics_of(input, extent, running_mean, running_var, options);
  Tensor value =
      kernels::batch_norm(input.value(), extent.outer, extent.inner, statistics, weight.value(), bias.value());
  return autograd::record(std::move(value), {input, weight, bias},
                          [extent, statistics, x = input.value(), w = weight.value(),
                           training = options.training](autograd::Backward& pass) {
                            auto gradients = kernels::batch_norm_backward(x, pass.grad(), extent.outer, extent.inner,
                                                                          statistics, w, training);
                            pass.add(2, std::move(gradients.bias));
                            pass.add(1, std::move(gradients.weight));
                            pass.add(0, std::move(gradients.x));
                          });
}

}  // namespace ddprun
