#include "ddprun/worker/autograd/ops/loss.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/autograd/ops/shape.h"
#include "ddprun/worker/autograd/tape.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {
namespace {

void check_scores(const char* op, const Variable& scores) {
  if (scores.shape().size() == 2 && scores.value().numel() > 0) return;
  throw make_error(Errc::mismatch, "{}: the scores have shape {}, not (batch, classes)", op, to_string(scores.shape()));
}

void check_targets(const char* op, const Variable& scores, const Tensor& targets) {
  check_scores(op, scores);
  if (targets.shape() != Shape{scores.shape()[0]} || targets.dtype() != DType::int64) {
    throw make_error(Errc::mismatch,
                     "{}: {} targets of shape {} do not fit scores of shape {}; int64, one a row, is wanted", op,
                     name_of(targets.dtype()), to_string(targets.shape()), to_string(scores.shape()));
  }
  const std::int64_t classes = scores.shape()[1];
  const std::int64_t* data = targets.data<std::int64_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    if (data[i] >= 0 && data[i] < classes) continue;
    throw make_error(Errc::usage, "{}: target {} of row {} is not one of the {} classes", op, data[i], i, classes);
  }
}

}  // namespace

Variable log_softmax(const Variable& scores) {
  check_scores("log_softmax", scores);
  Tensor value = kernels::log_softmax(scores.value());
  return autograd::record(value, {scores}, [value](autograd::Backward& pass) {
    pass.add(0, kernels::log_softmax_backward(value, pass.grad()));
  });
}

Variable nll_loss(const Variable& log_probabilities, const Tensor& targets) {
  check_targets("nll_loss", log_probabilities, targets);
  return autograd::record(kernels::nll_loss(log_probabilities.value(), targets), {log_probabilities},
                          [value = log_probabilities.value(), targets](autograd::Backward& pass) {
                            pass.add(0, kernels::nll_loss_backward(value, targets, pass.grad().item()));
                          });
}

Variable cross_entropy(const Variable& scores, const Tensor& targets) {
  check_targets("cross_entropy", scores, targets);
  const Tensor log_probabilities = kernels::log_softmax(scores.value());
  return autograd::record(kernels::nll_loss(log_probabilities, targets), {scores},
                          [log_probabilities, targets](autograd::Backward& pass) {
                            const double factor = pass.grad().item();
                            pass.add(0, kernels::cross_entropy_backward(log_probabilities, targets, factor));
                          });
}

Variable mse_loss(const Variable& input, const Tensor& target) {
  if (input.shape() != target.shape() || input.dtype() != target.dtype()) {
    throw make_error(Errc::mismatch, "mse_loss: {} of shape {} and a target, {} of shape {}, differ",
                     name_of(input.dtype()), to_string(input.shape()), name_of(target.dtype()),
                     to_string(target.shape()));
  }
  const Variable difference = add(input, Variable(kernels::scale(target, -1)));
  return mean(mul(difference, difference));
}

}  // namespace ddprun
