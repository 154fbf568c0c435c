#include "worker/autograd/ops/norm.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/function.h"
#include "worker/tensor/kernels.h"

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

// Parameters of 16-bit inputs may be float32, as under autocast.
void check_channels(const char* what, const Tensor& tensor, const Variable& input) {
  const bool fits = tensor.dtype() == input.dtype() ||
                    (tensor.dtype() == DType::float32 && size_of(input.dtype()) == 2 && is_floating(input.dtype()));
  if (tensor.shape() == Shape{input.shape()[1]} && fits) return;
  throw make_error(Errc::mismatch, "batch_norm: {}, {} of shape {}, does not fit a {} input of shape {}", what,
                   name_of(tensor.dtype()), to_string(tensor.shape()), name_of(input.dtype()),
                   to_string(input.shape()));
}

// running += momentum (batch - running)
void update_running(Tensor& running, const Tensor& batch, double momentum, double correction) {
  const Tensor fresh = kernels::scale(batch, momentum * correction);
  if (running.dtype() == batch.dtype()) {
    kernels::of(running).unary(kernels::Unary::scale, {.a = 1 - momentum}, running, running);
    kernels::add_in_place(running, fresh);
    return;
  }
  const Tensor kept = kernels::scale(running.to(batch.dtype()), 1 - momentum);
  running.copy_from(kernels::add(kept, fresh).to(running.dtype()));
}

// Values that are summed over the ranks are summed on the host.
Tensor on_host(const Tensor& values) {
  return values.to(Device{}).to(DType::float64);
}

// Returns the statistics of all ranks' samples, from this rank's; variance and count become those, too. For each
// channel the sums of values and of their squares are added up in float64.
kernels::NormStatistics over_ranks(const kernels::NormStatistics& own, Tensor& variance, double& count, double eps,
                                   const SumOverRanks& sum_over_ranks) {
  const auto means = on_host(own.mean), variances = on_host(variance);
  const auto channels = static_cast<std::size_t>(means.numel());
  std::vector<double> sums{count};
  for (std::size_t c = 0; c < channels; ++c) sums.push_back(count * means.data<double>()[c]);
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = means.data<double>()[c];
    sums.push_back(count * (variances.data<double>()[c] + mean * mean));
  }
  sum_over_ranks(sums);
  count = sums[0];
  Tensor mean = Tensor::empty(own.mean.shape(), DType::float64), spread = Tensor::empty(mean.shape(), DType::float64);
  for (std::size_t c = 0; c < channels; ++c) {
    const double of_all = sums[1 + c] / count;
    mean.data<double>()[c] = of_all;
    spread.data<double>()[c] = std::max(sums[1 + channels + c] / count - of_all * of_all, 0.0);
  }
  variance = spread.to(variance.dtype()).to(variance.device());
  return {mean.to(own.mean.dtype()).to(own.mean.device()), kernels::of(variance).inverse_deviation(variance, eps)};
}

// Returns what the statistics of all ranks' samples add to the gradient with constant statistics: linear in x for each
// channel, as batch norm itself is.
Tensor gradient_through_statistics(const Tensor& x, const Extent& extent, const kernels::NormStatistics& statistics,
                                   const Tensor& weight, const kernels::NormGradients& own, double count,
                                   const SumOverRanks& sum_over_ranks) {
  std::vector<double> sums;
  for (const auto* gradient : {&own.bias, &own.weight}) {
    const auto values = on_host(*gradient);
    sums.insert(sums.end(), values.data<double>(), values.data<double>() + values.numel());
  }
  sum_over_ranks(sums);
  const auto factor = on_host(kernels::scale(kernels::multiply(weight, statistics.inverse), -1 / count));
  Tensor slope = Tensor::empty(weight.shape(), DType::float64), offset = Tensor::empty(weight.shape(), DType::float64);
  const auto channels = static_cast<std::size_t>(weight.numel());
  for (std::size_t c = 0; c < channels; ++c) {
    offset.data<double>()[c] = factor.data<double>()[c] * sums[c];
    slope.data<double>()[c] = factor.data<double>()[c] * sums[channels + c];
  }
  return kernels::of(x).batch_norm(x, extent.outer, extent.inner, statistics, slope.to(weight.dtype()).to(x.device()),
                                   offset.to(weight.dtype()).to(x.device()));
}

kernels::NormStatistics statistics_of(const Variable& input, const Tensor& x, const Extent& extent,
                                      Tensor& running_mean, Tensor& running_var, const BatchNormOptions& options,
                                      double& count) {
  if (!options.training) return {running_mean, kernels::of(running_var).inverse_deviation(running_var, options.eps)};
  Tensor variance;
  auto statistics = kernels::of(x).batch_statistics(x, extent.outer, extent.inner, options.eps, variance);
  if (options.sum_over_ranks) statistics = over_ranks(statistics, variance, count, options.eps, options.sum_over_ranks);
  if (count < 2) {
    throw make_error(Errc::usage, "batch_norm: training needs more than one value a channel; the input has shape {}",
                     to_string(input.shape()));
  }
  if (autograd::is_recomputing()) return statistics;  // the running ones have this batch already
  update_running(running_mean, statistics.mean, options.momentum, 1);
  update_running(running_var, variance, options.momentum, count / (count - 1));
  return statistics;
}

}  // namespace

// Under autocast the input stays in its type, as in PyTorch; parameters and arithmetic are float32.
Variable batch_norm(const Variable& input, const Variable& weight, const Variable& bias, Tensor running_mean,
                    Tensor running_var, const BatchNormOptions& options) {
  const autograd::Function operation("batch_norm", {input, weight, bias}, {running_mean, running_var});
  const Extent extent = extent_of(input);
  const Tensor x = input.value().dense();
  check_channels("the weight", weight.value(), input);
  check_channels("the bias", bias.value(), input);
  check_channels("the running mean", running_mean, input);
  check_channels("the running variance", running_var, input);
  auto count = static_cast<double>(extent.outer * extent.inner);
  const auto statistics = statistics_of(input, x, extent, running_mean, running_var, options, count);
  Tensor value = kernels::of(x).batch_norm(x, extent.outer, extent.inner, statistics, weight.value(), bias.value());
  const bool shared = options.training && options.sum_over_ranks;
  return operation.record(
      std::move(value), {x, weight.value(), statistics.mean, statistics.inverse},
      [extent, count, shared, training = options.training,
       sum_over_ranks = options.sum_over_ranks](autograd::Backward& pass) {
        const Tensor& from = pass.saved(0);
        const kernels::NormStatistics used{pass.saved(2), pass.saved(3)};
        auto gradients = kernels::of(from).batch_norm_backward(from, pass.dense_grad().in_layout_of(from), extent.outer,
                                                               extent.inner, used, pass.saved(1), training && !shared);
        if (shared)
          gradients.x = kernels::add(gradients.x, gradient_through_statistics(from, extent, used, pass.saved(1),
                                                                              gradients, count, sum_over_ranks));
        pass.add(2, std::move(gradients.bias));
        pass.add(1, std::move(gradients.weight));
        pass.add(0, std::move(gradients.x));
      });
}

namespace {

void check_parameter(const char* name, const char* what, const Variable& parameter, std::int64_t size,
                     const Variable& input) {
  if (!parameter.defined() || (parameter.shape() == Shape{size} && parameter.dtype() == input.dtype())) return;
  throw make_error(Errc::mismatch, "{}: the {}, {} of shape {}, does not fit a {} input of shape {}", name, what,
                   name_of(parameter.dtype()), to_string(parameter.shape()), name_of(input.dtype()),
                   to_string(input.shape()));
}

// The destination of a parameter's gradient: the leaf's own memory, or a tensor that add() passes to the tape.
class ParameterGradient {
 public:
  ParameterGradient(autograd::Backward& pass, std::size_t input, const Tensor& like) : pass_(pass), input_(input) {
    if (!like.defined() || !pass.wants(input)) return;
    target_ = pass.target(input);
    in_place_ = target_.memory.defined();
    if (!in_place_) target_.memory = Tensor::empty_like(like);
  }
  const Tensor& memory() const { return target_.memory; }
  bool accumulate() const { return target_.accumulate; }
  void add() {
    if (target_.memory.defined() && !in_place_) pass_.add(input_, std::move(target_.memory));
  }

 private:
  autograd::Backward& pass_;
  std::size_t input_;
  autograd::Backward::Target target_;
  bool in_place_ = false;
};

// One pass computes the gradient of the rows with what else has been added to it, a copy of that in the type in which
// it is read next, and the gradients of the parameters.
void add_row_gradients(autograd::Backward& pass, const kernels::Axis& rows, bool centred, bool has_bias) {
  const Tensor &x = pass.saved(0), &weight = pass.saved(1);
  ParameterGradient of_weight(pass, 1, weight), of_bias(pass, 2, has_bias ? weight : Tensor());
  kernels::RowNormGradients out{.x = {},
                                .weight = of_weight.memory(),
                                .bias = of_bias.memory(),
                                .accumulate_weight = of_weight.accumulate(),
                                .accumulate_bias = of_bias.accumulate()};
  if (const auto dtype = pass.copy_dtype(0); dtype && *dtype == pass.grad().dtype() && *dtype != x.dtype())
    out.x_copy = Tensor::empty(x.shape(), *dtype, x.device());
  kernels::of(x).row_norm_backward(x, pass.grad(), pass.take(0), rows, centred, {pass.saved(2), pass.saved(3)}, weight,
                                   out);
  of_bias.add();
  of_weight.add();
  if (pass.wants(0)) pass.add(0, std::move(out.x), std::move(out.x_copy));
}

// Normalizes rows of axis.n channels of axis.inner values.
Variable normalize_rows(const char* name, const Variable& given_input, const kernels::Axis& axis, bool centred,
                        double eps, std::int64_t channels, const Variable& given_weight, const Variable& given_bias,
                        std::optional<DType> lower = {}) {
  const auto [input, weight, bias] =
      autograd::autocast(autograd::CastClass::float32, given_input, given_weight, given_bias);
  const autograd::Function operation(name, {input, weight, bias});
  check_parameter(name, "weight", weight, channels, input);
  check_parameter(name, "bias", bias, channels, input);
  if (bias.defined() && !weight.defined()) {
    throw make_error(Errc::usage, "{}: a bias without a weight is not supported", name);
  }
  const Tensor x = input.value().contiguous();
  kernels::NormStatistics statistics;
  const DType result = lower && x.dtype() == DType::float32 ? *lower : x.dtype();
  Tensor y = kernels::of(x).group_norm(x, axis, centred, eps, weight.value(), bias.value(), result, statistics);
  if (axis.inner == 1 && channels == axis.n)
    return operation.record(std::move(y), {x, weight.value(), statistics.mean, statistics.inverse},
                            [axis, centred, has_bias = bias.defined()](autograd::Backward& pass) {
                              add_row_gradients(pass, axis, centred, has_bias);
                            });
  return operation.record(std::move(y), {x, weight.value(), statistics.mean, statistics.inverse},
                          [axis, centred, has_bias = bias.defined()](autograd::Backward& pass) {
                            auto gradients =
                                kernels::of(pass.grad())
                                    .group_norm_backward(pass.saved(0), pass.grad(), axis, centred,
                                                         {pass.saved(2), pass.saved(3)}, pass.saved(1), has_bias);
                            if (pass.wants(2)) pass.add(2, std::move(gradients.bias));
                            if (pass.wants(1)) pass.add(1, std::move(gradients.weight));
                            if (pass.wants(0)) pass.add(0, std::move(gradients.x));
                          });
}

kernels::Axis last_dimension(const char* name, const Variable& input) {
  if (input.shape().empty() || input.shape().back() < 1) {
    throw make_error(Errc::mismatch, "{}: the input of shape {} has no last dimension to normalize", name,
                     to_string(input.shape()));
  }
  const std::int64_t width = input.shape().back();
  return {input.value().numel() / width, width, 1};
}

}  // namespace

Variable layer_norm(const Variable& input, const Variable& weight, const Variable& bias, double eps, bool lower) {
  const kernels::Axis axis = last_dimension("layer_norm", input);
  const DType narrow = autograd::autocast_dtype();
  return normalize_rows("layer_norm", input, axis, true, eps, axis.n, weight, bias,
                        lower && narrow != DType::float32 ? std::optional(narrow) : std::nullopt);
}

Variable rms_norm(const Variable& input, const Variable& weight, double eps) {
  const kernels::Axis axis = last_dimension("rms_norm", input);
  return normalize_rows("rms_norm", input, axis, false, eps, axis.n, weight, {});
}

Variable group_norm(const Variable& input, std::int64_t groups, const Variable& weight, const Variable& bias,
                    double eps) {
  const Shape& shape = input.shape();
  if (shape.size() < 2 || groups < 1 || shape[1] % groups != 0) {
    throw make_error(Errc::mismatch, "group_norm: {} groups do not divide the channels of an input of shape {}", groups,
                     to_string(shape));
  }
  const std::int64_t inner = numel(Shape(shape.begin() + 2, shape.end()));
  return normalize_rows("group_norm", input, {shape[0] * groups, shape[1] / groups, inner}, true, eps, shape[1], weight,
                        bias);
}

}  // namespace ddprun
