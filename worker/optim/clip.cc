#include "ddprun/worker/optim/clip.h"

#include <cmath>

#include "ddprun/common/error.h"
#include "ddprun/worker/optim/square_sum.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::optim {
namespace {

void check_above_zero(const char* name, double value) {
  if (!(value > 0)) throw make_error(Errc::usage, "gradient clipping: {} is {}, but has to be above 0", name, value);
}

// x = function(x)
void apply(kernels::Unary function, const kernels::Arguments& arguments, const NamedParameters& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.grad().defined()) continue;
    Tensor gradient = parameter.grad();
    kernels::of(gradient).unary(function, arguments, gradient, gradient);
    gradient.storage()->bump_version();
  }
}

}  // namespace

double grad_square_sum(const NamedParameters& parameters) {
  return square_sum(gradients_of(parameters));
}

double clip_grad_norm(const NamedParameters& parameters, double max_norm) {
  const double norm = std::sqrt(grad_square_sum(parameters));
  clip_grads_with_norm(parameters, max_norm, norm);
  return norm;
}

void clip_grads_with_norm(const NamedParameters& parameters, double max_norm, double norm) {
  check_above_zero("max_norm", max_norm);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) apply(kernels::Unary::scale, {.a = factor}, parameters);  // NaN too
}

void clip_grad_value(const NamedParameters& parameters, double clip_value) {
  check_above_zero("clip_value", clip_value);
  apply(kernels::Unary::clamp, {.a = -clip_value, .b = clip_value}, parameters);
}

}  // namespace ddprun::optim
