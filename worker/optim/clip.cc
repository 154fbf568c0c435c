#include "ddprun/worker/optim/clip.h"

#include <array>
#include <cmath>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::optim {
namespace {

void check_above_zero(const char* name, double value) {
  if (!(value > 0)) throw make_error(Errc::usage, "gradient clipping: {} is {}, but has to be above 0", name, value);
}

// Several sums side by side, which the processor can add at the same time.
template <class T>
double square_sum_of(std::int64_t count, const T* x) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  double total = 0;
  for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (const double sum : sums) total += sum;
  return total;
}

double square_sum(const Tensor& x) {
  if (x.device().type != DeviceType::cpu) return square_sum(x.to(Device{}));
  if (x.dtype() == DType::float64) return square_sum_of(x.numel(), x.data<double>());
  if (x.dtype() == DType::float32) return square_sum_of(x.numel(), x.data<float>());
  return square_sum(x.to(DType::float32));
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
  double squares = 0;
  for (const auto& [name, parameter] : parameters)
    if (parameter.grad().defined()) squares += square_sum(parameter.grad());
  return squares;
}

double clip_grad_norm(const NamedParameters& parameters, double max_norm, const SumOverRanks& sum_over_ranks) {
  double squares = grad_square_sum(parameters);
  if (sum_over_ranks) squares = sum_over_ranks(squares);
  const double norm = std::sqrt(squares);
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
