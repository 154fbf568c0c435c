#include "worker/autograd/ops/loss.h"

#include "common/error.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/mapped.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/autograd/ops/targets.h"

namespace ddprun::autograd {

void check_targets(const char* name, const Shape& scores, const Tensor& targets, const CrossEntropyOptions& options) {
  if (scores.size() != 2 || numel(scores) == 0) {
    throw make_error(Errc::mismatch, "{}: the scores have shape {}, not (batch, classes)", name, to_string(scores));
  }
  if (targets.shape() != Shape{scores[0]} || targets.dtype() != DType::int64) {
    throw make_error(Errc::mismatch,
                     "{}: {} targets of shape {} do not fit scores of shape {}; int64, one a row, is wanted", name,
                     name_of(targets.dtype()), to_string(targets.shape()), to_string(scores));
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1)) {
    throw make_error(Errc::usage, "{}: a label smoothing of {} is not within [0, 1)", name, options.label_smoothing);
  }
  if (targets.device().type != DeviceType::cpu) return;  // a look at them would wait for the device
  const std::int64_t classes = scores[1];
  const std::int64_t* data = targets.data<std::int64_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    if ((data[i] >= 0 && data[i] < classes) || data[i] == options.ignore_index) continue;
    throw make_error(Errc::usage, "{}: target {} of row {} is not one of the {} classes", name, data[i], i, classes);
  }
}

}  // namespace ddprun::autograd

namespace ddprun {
namespace {

using autograd::autocast;
using autograd::CastClass;
using kernels::Axis;
using kernels::Binary;

kernels::CrossEntropyOptions kernel_options(const CrossEntropyOptions& options) {
  return {.label_smoothing = options.label_smoothing, .ignore_index = options.ignore_index};
}

// Returns the gradient of a loss by compute(factor) = factor times its derivative. The host waits for no device to know
// the factor, which is the loss's own gradient.
template <class Compute>
Tensor times_gradient(const Tensor& gradient, Compute compute) {
  if (gradient.device().type == DeviceType::cpu) return compute(gradient.item());
  Tensor result = compute(1);
  kernels::of(result).binary(Binary::multiply, {}, result, gradient.to(result.dtype()).expand(result.shape()), result);
  return result;
}

void check_like(const char* name, const Variable& input, const Tensor& target) {
  if (input.shape() == target.shape() && input.dtype() == target.dtype()) return;
  throw make_error(Errc::mismatch, "{}: {} of shape {} and a target, {} of shape {}, differ", name,
                   name_of(input.dtype()), to_string(input.shape()), name_of(target.dtype()),
                   to_string(target.shape()));
}

// Records a functor of input and target, element by element.
Variable element_loss(const char* name, Binary function, const Variable& given, const Tensor& given_target,
                      const kernels::Arguments& arguments = {}) {
  const Variable input = autocast(CastClass::float32, given);
  const Tensor target = autocast(CastClass::float32, given_target);
  check_like(name, input, target);
  return autograd::binary(name, function, input, Variable(target), arguments);
}

}  // namespace

Variable nll_loss(const Variable& given, const Tensor& targets, const CrossEntropyOptions& options) {
  const Variable log_probabilities = autocast(CastClass::float32, given);
  const autograd::Function operation("nll_loss", {log_probabilities}, {targets});
  autograd::check_targets("nll_loss", log_probabilities.shape(), targets, options);
  const Tensor x = log_probabilities.value().contiguous();
  return operation.record(kernels::of(x).nll_loss(x, targets, kernel_options(options)), {x, targets},
                          [options = kernel_options(options)](autograd::Backward& pass) {
                            const Tensor& saved = pass.saved(0);
                            pass.add(0, times_gradient(pass.grad(), [&](double factor) {
                                       return kernels::of(saved).nll_loss_backward(saved, pass.saved(1), options,
                                                                                   factor);
                                     }));
                          });
}

Variable cross_entropy(const Variable& given, const Tensor& targets, const CrossEntropyOptions& options) {
  const Variable scores = autocast(CastClass::float32, given);
  const autograd::Function operation("cross_entropy", {scores}, {targets});
  autograd::check_targets("cross_entropy", scores.shape(), targets, options);
  const Tensor x = scores.value().contiguous();
  Tensor log_probabilities = Tensor::empty_like(x);
  kernels::of(x).softmax(x, {x.size(0), x.size(1), 1}, true, log_probabilities);
  return operation.record(kernels::of(x).nll_loss(log_probabilities, targets, kernel_options(options)),
                          {log_probabilities, targets}, [options = kernel_options(options)](autograd::Backward& pass) {
                            const Tensor& saved = pass.saved(0);
                            pass.add(0, times_gradient(pass.grad(), [&](double factor) {
                                       return kernels::of(saved).cross_entropy_backward(saved, pass.saved(1), options,
                                                                                        factor);
                                     }));
                          });
}

Variable mse_loss(const Variable& given, const Tensor& given_target) {
  const Variable input = autocast(CastClass::float32, given);
  const Tensor target = autocast(CastClass::float32, given_target);
  check_like("mse_loss", input, target);
  const Variable difference = sub(input, Variable(target));
  return mean(mul(difference, difference));
}

Variable smooth_l1_loss(const Variable& input, const Tensor& target, double beta) {
  if (!(beta > 0)) throw make_error(Errc::usage, "smooth_l1_loss: beta is {}, but has to be positive", beta);
  return mean(element_loss("smooth_l1_loss", Binary::smooth_l1, input, target, {.a = beta}));
}

Variable binary_cross_entropy(const Variable& input, const Tensor& target) {
  return mean(element_loss("binary_cross_entropy", Binary::binary_cross_entropy, input, target));
}

Variable binary_cross_entropy_with_logits(const Variable& input, const Tensor& target) {
  return mean(
      element_loss("binary_cross_entropy_with_logits", Binary::binary_cross_entropy_with_logits, input, target));
}

Variable kl_div(const Variable& input, const Tensor& target) {
  if (input.shape().empty() || input.shape()[0] == 0) {
    throw make_error(Errc::usage, "kl_div: the input of shape {} has no samples", to_string(input.shape()));
  }
  return mul(sum(element_loss("kl_div", Binary::kl_divergence, input, target)),
             1 / static_cast<double>(input.shape()[0]));
}

}  // namespace ddprun
