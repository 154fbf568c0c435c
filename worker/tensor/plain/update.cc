#include <cmath>

#include "ddprun/worker/tensor/plain/loops.h"
#include "ddprun/worker/tensor/plain/vectorize.h"

namespace ddprun::plain {

template <class T>
DDPRUN_VECTORIZED void Update<T>::sgd(std::int64_t count, T* value, const T* grad, T* momentum, const SgdStep& step) {
  const T lr = static_cast<T>(step.lr), decay = static_cast<T>(step.weight_decay);
  if (momentum == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) value[i] -= lr * (grad[i] + decay * value[i]);
    return;
  }
  const T keep = static_cast<T>(step.momentum);
  for (std::int64_t i = 0; i < count; ++i) {
    momentum[i] = keep * momentum[i] + (grad[i] + decay * value[i]);
    value[i] -= lr * momentum[i];
  }
}

// Kingma and Ba, "Adam", with PyTorch's placement of eps: after the bias correction of the square root.
template <class T>
DDPRUN_VECTORIZED void Update<T>::adam(std::int64_t count, T* value, const T* grad, T* average, T* square_average,
                                       const AdamStep& step) {
  const double steps = static_cast<double>(step.step);
  const T rate = static_cast<T>(step.lr / (1 - std::pow(step.beta1, steps)));
  const T correction = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, steps)));
  const T beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(step.beta2);
  const T rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(1 - step.beta2);
  const T eps = static_cast<T>(step.eps), decay = static_cast<T>(step.weight_decay);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = grad[i] + decay * value[i];
    average[i] = beta1 * average[i] + rest1 * g;
    square_average[i] = beta2 * square_average[i] + rest2 * (g * g);
    value[i] -= rate * average[i] / (std::sqrt(square_average[i]) / correction + eps);
  }
}

template struct Update<float>;
template struct Update<double>;

}  // namespace ddprun::plain
