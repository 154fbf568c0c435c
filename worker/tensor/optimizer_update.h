#pragma once

#include <cmath>

#include "common/host_device.h"
#include "worker/tensor/functors/math.h"
#include "worker/tensor/geometry.h"

// The changes that optimizers make to one element, for host and device alike. T: float or double. The constants of a
// step are rounded to T once.
namespace ddprun::kernels {

template <class T>
struct SgdUpdate {
  T lr, decay;

  explicit SgdUpdate(const SgdStep& step) : lr(static_cast<T>(step.lr)), decay(static_cast<T>(step.weight_decay)) {}
  DDPRUN_HOST_DEVICE void operator()(T& value, T grad) const { value -= lr * (grad + decay * value); }
};

template <class T>
struct SgdMomentumUpdate {
  T lr, decay, keep, take, ahead;
  bool nesterov;

  // first: the momentum starts as the gradient.
  explicit SgdMomentumUpdate(const SgdStep& step, bool first = false)
      : lr(static_cast<T>(step.lr)),
        decay(static_cast<T>(step.weight_decay)),
        keep(first ? T(0) : static_cast<T>(step.momentum)),
        take(first ? T(1) : static_cast<T>(1 - step.dampening)),
        ahead(static_cast<T>(step.momentum)),
        nesterov(step.nesterov) {}
  DDPRUN_HOST_DEVICE void operator()(T& value, T grad, T& momentum) const {
    const T g = grad + decay * value;
    momentum = keep * momentum + take * g;
    value -= lr * (nesterov ? g + ahead * momentum : momentum);
  }
};

// Kingma and Ba, "Adam", with PyTorch's placement of eps: after the bias correction of the square root. Decoupled:
// Loshchilov and Hutter, "AdamW".
template <class T>
struct AdamUpdate {
  T rate, correction, beta1, beta2, rest1, rest2, eps, decay, shrink;

  DDPRUN_HOST_DEVICE explicit AdamUpdate(const AdamStep& step)
      : AdamUpdate(step, step.freeze_step > 0 && step.step > step.freeze_step) {}
  DDPRUN_HOST_DEVICE void operator()(T& value, T grad, T& average, T& square_average) const {
    const T g = grad + decay * value;
    average = beta1 * average + rest1 * g;
    square_average = beta2 * square_average + rest2 * (g * g);
    value = shrink * value - rate * average / (functor::sqrt(square_average) / correction + eps);
  }

 private:
  DDPRUN_HOST_DEVICE AdamUpdate(const AdamStep& step, bool frozen)
      : rate(static_cast<T>(step.lr / (1 - std::pow(step.beta1, static_cast<double>(step.step))))),
        correction(static_cast<T>(
            std::sqrt(1 - std::pow(step.beta2, static_cast<double>(frozen ? step.freeze_step : step.step))))),
        beta1(static_cast<T>(step.beta1)),
        beta2(static_cast<T>(frozen ? 1 : step.beta2)),
        rest1(static_cast<T>(1 - step.beta1)),
        rest2(static_cast<T>(frozen ? 0 : 1 - step.beta2)),
        eps(static_cast<T>(step.eps)),
        decay(static_cast<T>(step.decoupled ? 0 : step.weight_decay)),
        shrink(static_cast<T>(step.decoupled ? 1 - step.lr * step.weight_decay : 1)) {}
};

// An exponential moving average of a value.
template <class T>
struct EmaUpdate {
  T keep, take;
  bool first;

  DDPRUN_HOST_DEVICE explicit EmaUpdate(const EmaStep& step)
      : keep(static_cast<T>(step.decay)), take(static_cast<T>(1 - step.decay)), first(step.first) {}
  DDPRUN_HOST_DEVICE void operator()(T& average, T value) const {
    average = first ? value : keep * average + take * value;
  }
};

}  // namespace ddprun::kernels
