#include <algorithm>
#include <cmath>

#include "ddprun/worker/tensor/plain/loops.h"

namespace ddprun::plain {

template <class T>
void Loss<T>::log_softmax(std::int64_t rows, std::int64_t classes, const T* scores, T* y) {
  for (std::int64_t row = 0; row < rows; ++row, scores += classes, y += classes) {
    const T highest = *std::max_element(scores, scores + classes);
    T total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += std::exp(scores[c] - highest);
    const T log_total = std::log(total);
    for (std::int64_t c = 0; c < classes; ++c) y[c] = scores[c] - highest - log_total;
  }
}

template <class T>
void Loss<T>::log_softmax_backward(std::int64_t rows, std::int64_t classes, const T* y, const T* grad, T* out) {
  for (std::int64_t row = 0; row < rows; ++row, y += classes, grad += classes, out += classes) {
    T total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += grad[c];
    for (std::int64_t c = 0; c < classes; ++c) out[c] = grad[c] - std::exp(y[c]) * total;
  }
}

template <class T>
T Loss<T>::nll(std::int64_t rows, std::int64_t classes, const T* log_probabilities, const std::int64_t* targets) {
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    total -= static_cast<double>(log_probabilities[row * classes + targets[row]]);
  }
  return static_cast<T>(total / static_cast<double>(rows));
}

template <class T>
void Loss<T>::cross_entropy_backward(std::int64_t rows, std::int64_t classes, const T* log_probabilities,
                                     const std::int64_t* targets, T factor, T* out) {
  for (std::int64_t row = 0; row < rows; ++row, log_probabilities += classes, out += classes) {
    for (std::int64_t c = 0; c < classes; ++c) out[c] = factor * std::exp(log_probabilities[c]);
    out[targets[row]] -= factor;
  }
}

template struct Loss<float>;
template struct Loss<double>;

}  // namespace ddprun::plain
