#include <cmath>

#include "ddprun/worker/tensor/cpu/table.h"
#include "ddprun/worker/tensor/cpu/vectorize.h"
#include "ddprun/worker/tensor/cpu/visit_dtype.h"

// Bits do not depend on the processor's vector width.
namespace ddprun::cpu {
namespace {

using kernels::AdamStep;
using kernels::SgdStep;

template <class T>
DDPRUN_VECTORIZED void sgd(std::int64_t count, T* value, const T* grad, const SgdStep& step) {
  const T lr = static_cast<T>(step.lr), decay = static_cast<T>(step.weight_decay);
  for (std::int64_t i = 0; i < count; ++i) value[i] -= lr * (grad[i] + decay * value[i]);
}

template <class T>
DDPRUN_VECTORIZED void sgd_momentum(std::int64_t count, T* value, const T* grad, T* momentum, const SgdStep& step) {
  const T lr = static_cast<T>(step.lr), decay = static_cast<T>(step.weight_decay);
  const T keep = step.first ? T(0) : static_cast<T>(step.momentum);
  const T take = step.first ? T(1) : static_cast<T>(1 - step.dampening);
  const T ahead = static_cast<T>(step.momentum);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = grad[i] + decay * value[i];
    momentum[i] = keep * momentum[i] + take * g;
    value[i] -= lr * (step.nesterov ? g + ahead * momentum[i] : momentum[i]);
  }
}

// Kingma and Ba, "Adam", with PyTorch's placement of eps: after the bias correction of the square root. Decoupled:
// Loshchilov and Hutter, "AdamW".
template <class T>
DDPRUN_VECTORIZED void adam(std::int64_t count, T* value, const T* grad, T* average, T* square_average,
                            const AdamStep& step) {
  const bool frozen = step.freeze_step > 0 && step.step > step.freeze_step;
  const double steps = static_cast<double>(step.step),
               squares = static_cast<double>(frozen ? step.freeze_step : step.step);
  const T rate = static_cast<T>(step.lr / (1 - std::pow(step.beta1, steps)));
  const T correction = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, squares)));
  const T beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(frozen ? 1 : step.beta2);
  const T rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(frozen ? 0 : 1 - step.beta2);
  const T eps = static_cast<T>(step.eps);
  const T decay = static_cast<T>(step.decoupled ? 0 : step.weight_decay);
  const T shrink = static_cast<T>(step.decoupled ? 1 - step.lr * step.weight_decay : 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = grad[i] + decay * value[i];
    average[i] = beta1 * average[i] + rest1 * g;
    square_average[i] = beta2 * square_average[i] + rest2 * (g * g);
    value[i] = shrink * value[i] - rate * average[i] / (std::sqrt(square_average[i]) / correction + eps);
  }
}

void sgd_step(Tensor& value, const Tensor& grad, Tensor& momentum, const SgdStep& step) {
  visit_wide(value.dtype(), [&]<class T>() {
    if (momentum.defined())
      sgd_momentum(value.numel(), value.data<T>(), grad.data<T>(), momentum.data<T>(), step);
    else
      sgd(value.numel(), value.data<T>(), grad.data<T>(), step);
  });
}

void adam_step(Tensor& value, const Tensor& grad, Tensor& average, Tensor& square_average, const AdamStep& step) {
  visit_wide(value.dtype(), [&]<class T>() {
    adam(value.numel(), value.data<T>(), grad.data<T>(), average.data<T>(), square_average.data<T>(), step);
  });
}

}  // namespace

void add_optimizers(kernels::Table& table) {
  table.sgd_step = sgd_step;
  table.adam_step = adam_step;
}

}  // namespace ddprun::cpu
