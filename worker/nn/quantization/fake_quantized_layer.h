#pragma once

#include <cstddef>
#include <utility>

#include "worker/autograd/ops/quantization.h"
#include "worker/nn/layers/weighted_layer.h"
#include "worker/tensor/kernels.h"

namespace ddprun::nn {

// Computes a layer in float32 from an input and a weight that are rounded as a quantized layer rounds them; gradients
// pass straight through the rounding (Jacob et al. 2018). While it trains, the range of the inputs, the buffer
// input_range (2), follows that of the batches: 0.99 of what it was and 0.01 of the batch's; it starts as the first
// batch's. Has the layer's own parameters.
//
// Ownership: the layer outlives it.
class FakeQuantizedLayer : public WeightedLayer {
 public:
  explicit FakeQuantizedLayer(const WeightedLayer& layer);
  kernels::ValueRange range() const;
  // For ranks that each have some of the inputs, and their columns of the weight: share replaces numbers by the largest
  // of all ranks, so that all round as the whole layer would. Each pass calls it once for the weight, and once for the
  // inputs while it trains.
  void share_maxima(ShareMaxima share) { share_maxima_ = std::move(share); }

  std::size_t output_dimension() const override { return layer_.output_dimension(); }
  Variable apply(const Variable& input, const Variable& weight, const Variable& bias) const override;

 private:
  kernels::ValueRange range_of(const Tensor& input) const;
  void follow(const Tensor& input) const;

  const WeightedLayer& layer_;
  Variable range_;
  ShareMaxima share_maxima_;
};

}  // namespace ddprun::nn
