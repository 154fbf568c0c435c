#include "worker/optim/clip.h"

#include <cmath>

#include "common/error.h"
#include "worker/optim/square_sum.h"
#include "worker/tensor/by_device.h"
#include "worker/tensor/kernels.h"

namespace ddprun::optim {
namespace {

void check_above_zero(const char* name, double value) {
  if (!(value > 0)) throw make_error(Errc::usage, "gradient clipping: {} is {}, but has to be above 0", name, value);
}

bool is_on_host(const std::vector<Tensor>& gradients) {
  return gradients.empty() || gradients[0].device().type == DeviceType::cpu;
}

void bump_versions(const std::vector<Tensor>& gradients) {
  for (const Tensor& gradient : gradients) gradient.storage()->bump_version();
}

// Computes x = function(x).
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
  const auto gradients = gradients_of(parameters);
  if (!is_on_host(gradients)) {
    const Tensor sum = square_sum_there(gradients);
    clip_grads_with_square_sum(parameters, max_norm, sum);
    return std::sqrt(sum.item());
  }
  const double norm = std::sqrt(square_sum(gradients));
  clip_grads_with_norm(parameters, max_norm, norm);
  return norm;
}

void clip_grads_with_norm(const NamedParameters& parameters, double max_norm, double norm) {
  check_above_zero("max_norm", max_norm);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) apply(kernels::Unary::scale, {.a = factor}, parameters);  // also if it is NaN
}

Tensor grad_square_sum_there(const NamedParameters& parameters) {
  return square_sum_there(gradients_of(parameters));
}

void clip_grads_with_square_sum(const NamedParameters& parameters, double max_norm, const Tensor& square_sum) {
  const auto gradients = gradients_of(parameters);
  if (is_on_host(gradients)) return clip_grads_with_norm(parameters, max_norm, std::sqrt(square_sum.item()));
  check_above_zero("max_norm", max_norm);
  for (const auto& [device, own] : by_device(gradients))
    kernels::of(own[0]).clip_to_norm(own, max_norm, square_sum.to(device));
  bump_versions(gradients);
}

void clip_grad_value(const NamedParameters& parameters, double clip_value) {
  check_above_zero("clip_value", clip_value);
  const auto gradients = gradients_of(parameters);
  if (is_on_host(gradients)) return apply(kernels::Unary::clamp, {.a = -clip_value, .b = clip_value}, parameters);
  for (const auto& [device, own] : by_device(gradients)) kernels::of(own[0]).clip_to_value(own, clip_value);
  bump_versions(gradients);
}

}  // namespace ddprun::optim
