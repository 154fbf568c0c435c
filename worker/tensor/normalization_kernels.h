#pragma once

#include <cstdint>

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

struct NormStatistics {
  Tensor mean;     // (channels), or one per row
  Tensor inverse;  // (channels), or one per row: 1 / sqrt(variance + eps)
};
struct NormGradients {
  Tensor x, weight, bias;  // weight and bias undefined where there are none
};

// The gradients of rows, written where the caller wants them.
struct RowNormGradients {
  Tensor x;                       // made here
  Tensor x_copy = {};             // the same in 16 bits, where x is float32, or undefined
  Tensor weight = {}, bias = {};  // undefined where they are not wanted
  bool accumulate_weight = false, accumulate_bias = false;
};

// Normalizations of the table (kernels.h).
struct NormalizationKernels {
  // Batch normalization of x (outer, channels, inner), dense; variance: the biased one.
  Entry<NormStatistics(In x, std::int64_t outer, std::int64_t inner, double eps, Tensor& variance)> batch_statistics{
      "batch_statistics"};
  // 1 / sqrt(variance + eps), element by element
  Entry<Tensor(In variance, double eps)> inverse_deviation{"inverse_deviation"};
  // y = (x - mean) * inverse * weight + bias
  Entry<Tensor(In x, std::int64_t outer, std::int64_t inner, const NormStatistics&, In weight, In bias)> batch_norm{
      "batch_norm"};
  // training: true if the statistics are of this very x and carry gradient too.
  Entry<NormGradients(In x, In grad, std::int64_t outer, std::int64_t inner, const NormStatistics&, In weight,
                      bool training)>
      batch_norm_backward{"batch_norm_backward"};

  // Normalization of x (groups, channels, inner) over channels and inner together, then y = x weight + bias by channel
  // (either may be undefined; they have groups_per_sample * channels elements). inner is 1 for layer norm. centred:
  // false leaves the mean out, which is RMS norm. result: the type of y, that of x or 16 bits where x is float32.
  Entry<Tensor(In x, const Axis& groups, bool centred, double eps, In weight, In bias, DType result, NormStatistics&)>
      group_norm{"group_norm"};
  Entry<NormGradients(In x, In grad, const Axis& groups, bool centred, const NormStatistics&, In weight, bool has_bias)>
      group_norm_backward{"group_norm_backward"};
  // Does the same for rows whose channels all have their own weight, where inner is 1, with an addend, like x or
  // undefined, to which the gradient of x is added. grad: has the type of y.
  Entry<void(In x, In grad, In addend, const Axis& rows, bool centred, const NormStatistics&, In weight,
             RowNormGradients& out)>
      row_norm_backward{"row_norm_backward"};
};

}  // namespace ddprun::kernels
