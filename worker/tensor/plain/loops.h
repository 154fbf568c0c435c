#pragma once

#include <cstdint>

#include "ddprun/worker/tensor/kernels.h"

// The plain loops behind kernels.h, on raw memory, for float and double. They are the oracle of the fast paths, the
// only path of double, and what runs where no faster path exists. Layouts and meanings are those of kernels.h.
namespace ddprun::plain {

using kernels::AdamStep;
using kernels::ConvGeometry;
using kernels::PoolGeometry;
using kernels::SgdStep;

// (outer, channels, inner)
struct Channels {
  std::int64_t outer, channels, inner;
};

template <class T>
struct Elementwise {
  static void add(std::int64_t count, const T* a, const T* b, T* out);
  static void multiply(std::int64_t count, const T* a, const T* b, T* out);
  static void scale(std::int64_t count, const T* a, T factor, T* out);
  static void relu(std::int64_t count, const T* x, T* y);
  static void relu_backward(std::int64_t count, const T* y, const T* grad, T* out);
};

template <class T>
struct Sums {
  static T sum(std::int64_t count, const T* x);
  static void add_bias(Channels shape, const T* bias, T* x);
  static void sum_to_bias(Channels shape, const T* grad, T* out, bool accumulate);
};

template <class T>
struct Matmul {
  struct Sizes {
    std::int64_t m, n, k;
  };
  static void matmul(Sizes sizes, const T* a, const T* b, T* out, kernels::MatmulOptions options);
};

template <class T>
struct Conv {
  static void forward(const ConvGeometry& g, const T* x, const T* weight, const T* bias, T* y);
  static void backward_input(const ConvGeometry& g, const T* grad, const T* weight, T* x_grad);
  static void backward_weight(const ConvGeometry& g, const T* x, const T* grad, T* weight_grad, bool accumulate);
};

template <class T>
struct Pool {
  static void forward(const PoolGeometry& g, const T* x, T* y, std::int32_t* index);
  static void backward(const PoolGeometry& g, const T* grad, const std::int32_t* index, T* x_grad);
};

template <class T>
struct Norm {
  static void statistics(Channels shape, const T* x, T* mean, T* variance);  // the biased variance
  static void forward(Channels shape, const T* x, const T* mean, const T* inverse, const T* weight, const T* bias,
                      T* y);
  struct BackwardInput {
    const T *x, *grad, *mean, *inverse, *weight;
    bool training;
  };
  static void backward(Channels shape, const BackwardInput& in, T* x_grad, T* weight_grad, T* bias_grad);
};

template <class T>
struct Loss {
  static void log_softmax(std::int64_t rows, std::int64_t classes, const T* scores, T* y);
  static void log_softmax_backward(std::int64_t rows, std::int64_t classes, const T* y, const T* grad, T* out);
  static T nll(std::int64_t rows, std::int64_t classes, const T* log_probabilities, const std::int64_t* targets);
  // out = factor * (exp(log_probabilities) - one at the target)
  static void cross_entropy_backward(std::int64_t rows, std::int64_t classes, const T* log_probabilities,
                                     const std::int64_t* targets, T factor, T* out);
};

template <class T>
struct Update {
  static void sgd(std::int64_t count, T* value, const T* grad, T* momentum, const SgdStep& step);
  static void adam(std::int64_t count, T* value, const T* grad, T* average, T* square_average, const AdamStep& step);
};

}  // namespace ddprun::plain
