#include "ddprun/worker/tensor/plain/lanes.h"
#include "ddprun/worker/tensor/plain/loops.h"
#include "ddprun/worker/tensor/plain/vectorize.h"

namespace ddprun::plain {

template <class T>
DDPRUN_VECTORIZED void Elementwise<T>::add(std::int64_t count, const T* a, const T* b, T* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

template <class T>
DDPRUN_VECTORIZED void Elementwise<T>::multiply(std::int64_t count, const T* a, const T* b, T* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] * b[i];
}

template <class T>
DDPRUN_VECTORIZED void Elementwise<T>::scale(std::int64_t count, const T* a, T factor, T* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] * factor;
}

template <class T>
DDPRUN_VECTORIZED void Elementwise<T>::relu(std::int64_t count, const T* x, T* y) {
  // A NaN stays one: a broken value has to be seen, not hidden.
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] < T(0) ? T(0) : x[i];
}

template <class T>
DDPRUN_VECTORIZED void Elementwise<T>::relu_backward(std::int64_t count, const T* y, const T* grad, T* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = y[i] > T(0) ? grad[i] : T(0);
}

template <class T>
DDPRUN_VECTORIZED T Sums<T>::sum(std::int64_t count, const T* x) {
  // Blocks in lanes, blocks together in double: the error does not grow with the length.
  constexpr std::int64_t block = 512;
  double total = 0;
  for (std::int64_t start = 0; start < count; start += block) {
    const T* from = x + start;
    const std::int64_t size = count - start < block ? count - start : block;
    total += static_cast<double>(lane_sum<T>(size, [from](std::int64_t i) { return from[i]; }));
  }
  return static_cast<T>(total);
}

template <class T>
DDPRUN_VECTORIZED void Sums<T>::add_bias(Channels shape, const T* bias, T* x) {
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    if (shape.inner == 1) {
      for (std::int64_t c = 0; c < shape.channels; ++c) x[c] += bias[c];
      x += shape.channels;
      continue;
    }
    for (std::int64_t c = 0; c < shape.channels; ++c, x += shape.inner) {
      for (std::int64_t i = 0; i < shape.inner; ++i) x[i] += bias[c];
    }
  }
}

template <class T>
DDPRUN_VECTORIZED void Sums<T>::sum_to_bias(Channels shape, const T* grad, T* out, bool accumulate) {
  if (!accumulate) {
    for (std::int64_t c = 0; c < shape.channels; ++c) out[c] = 0;
  }
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    if (shape.inner == 1) {
      for (std::int64_t c = 0; c < shape.channels; ++c) out[c] += grad[c];
      grad += shape.channels;
      continue;
    }
    for (std::int64_t c = 0; c < shape.channels; ++c, grad += shape.inner) {
      out[c] += lane_sum<T>(shape.inner, [grad](std::int64_t i) { return grad[i]; });
    }
  }
}

template struct Elementwise<float>;
template struct Elementwise<double>;
template struct Sums<float>;
template struct Sums<double>;

}  // namespace ddprun::plain
