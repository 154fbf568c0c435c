#pragma once

#include <cstdint>

#include "ddprun/worker/tensor/random.h"
#include "ddprun/worker/tensor/tensor.h"

// One function a primitive, for float32 and float64; other dtypes are Errc::unsupported. Shapes are the caller's
// business (autograd/ops checks them): here they are REQUIRED to fit. Results are new tensors unless they are
// arguments; "accumulate" adds to them instead of overwriting.
//
// Sums are taken in an order that depends on shapes alone, so the same input gives the same bits.
// float32 goes to oneDNN (matrix products, convolution) or to vectorised plain loops; float64 to plain
// loops.
namespace ddprun::kernels {

// --- elementwise; a, b, y and gradients have equal shapes
Tensor add(const Tensor& a, const Tensor& b);
void add_in_place(Tensor& a, const Tensor& b);  // a += b
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& a, double factor);
Tensor relu(const Tensor& x);
Tensor relu_backward(const Tensor& y, const Tensor& grad);  // grad where y > 0, else 0
// Elements are 0 with the given probability, else 1 / (1 - probability).
Tensor dropout_mask(const Shape& shape, DType dtype, double probability, Generator& generator);

// --- sums
Tensor sum(const Tensor& x);  // scalar
// x (outer, channels, inner) += bias (channels)
void add_bias(Tensor& x, const Tensor& bias, std::int64_t outer, std::int64_t inner);
// out (channels) = the sum of grad (outer, channels, inner) over outer and inner
void sum_to_bias(const Tensor& grad, std::int64_t outer, std::int64_t inner, Tensor& out, bool accumulate);

// --- matrix product: out (m, n) = op(a) (m, k) op(b) (k, n); op transposes if told so
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};
void matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options = {});

// --- convolution (cross-correlation) and pooling, row-major (batch, channels, height, width)
struct ConvGeometry {
  std::int64_t batch, in_channels, height, width;
  std::int64_t out_channels, kernel_h, kernel_w;
  std::int64_t stride, padding;
  std::int64_t out_h, out_w;
  friend auto operator<=>(const ConvGeometry&, const ConvGeometry&) = default;
};
// weight (out, in, kh, kw); bias (out) or undefined
Tensor conv2d(const ConvGeometry& geometry, const Tensor& x, const Tensor& weight, const Tensor& bias);
Tensor conv2d_backward_input(const ConvGeometry& geometry, const Tensor& grad, const Tensor& weight);
void conv2d_backward_weight(const ConvGeometry& geometry, const Tensor& x, const Tensor& grad, Tensor& weight_grad,
                            bool accumulate);

struct PoolGeometry {
  std::int64_t planes, height, width;  // planes: batch times channels
  std::int64_t kernel, stride, padding;
  std::int64_t out_h, out_w;
};
// index, int32 and like the result: where in its plane of x the (first) maximum was.
Tensor max_pool2d(const PoolGeometry& geometry, const Tensor& x, const Shape& out_shape, Tensor& index);
Tensor max_pool2d_backward(const PoolGeometry& geometry, const Tensor& grad, const Tensor& index,
                           const Shape& in_shape);

// --- batch normalisation of x (outer, channels, inner)
struct NormStatistics {
  Tensor mean;     // (channels)
  Tensor inverse;  // (channels): 1 / sqrt(variance + eps)
};
NormStatistics batch_statistics(const Tensor& x, std::int64_t outer, std::int64_t inner, double eps, Tensor& variance);
// 1 / sqrt(variance + eps), element by element
Tensor inverse_deviation(const Tensor& variance, double eps);
// y = (x - mean) * inverse * weight + bias
Tensor batch_norm(const Tensor& x, std::int64_t outer, std::int64_t inner, const NormStatistics& statistics,
                  const Tensor& weight, const Tensor& bias);
struct NormGradients {
  Tensor x, weight, bias;
};
// training: the statistics are of this very x and carry gradient too.
NormGradients batch_norm_backward(const Tensor& x, const Tensor& grad, std::int64_t outer, std::int64_t inner,
                                  const NormStatistics& statistics, const Tensor& weight, bool training);

// --- losses over scores (batch, classes); targets (batch) int64 within range
Tensor log_softmax(const Tensor& scores);
Tensor log_softmax_backward(const Tensor& y, const Tensor& grad);
// The mean over the batch of -log_probabilities[i, target[i]].
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets);
// factor * d nll / d scores, given log-probabilities: (softmax - one at the target) * factor / batch
Tensor cross_entropy_backward(const Tensor& log_probabilities, const Tensor& targets, double factor);
// -factor / batch at each target, else 0
Tensor nll_loss_backward(const Tensor& log_probabilities, const Tensor& targets, double factor);
// For each row of scores, the first index of its maximum; int64.
Tensor argmax_rows(const Tensor& scores);

// --- optimizers: one pass over a tensor, in place. Bits do not depend on the processor's vector width.
struct SgdStep {
  double lr, momentum, weight_decay;
};
// momentum: zero before the first step; undefined: none
void sgd_step(Tensor& value, const Tensor& grad, Tensor& momentum, const SgdStep& step);
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;  // from 1
};
void adam_step(Tensor& value, const Tensor& grad, Tensor& average, Tensor& square_average, const AdamStep& step);

}  // namespace ddprun::kernels
