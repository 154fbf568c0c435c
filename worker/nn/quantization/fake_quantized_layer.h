#pragma once

#include "worker/nn/layers/weighted_layer.h"
#include "worker/tensor/kernels.h"

namespace ddprun::nn {

// Computes a layer in float32 from an input and a weight that are rounded as a quantized layer rounds them; gradients
// pass straight through the rounding (Jacob et al. 2018). While it trains, the range of the inputs, the buffer
// input_range (2), follows that of the batches: 0.99 of what it was and 0.01 of the batch's; it starts as the first
// batch's. Has the layer's own parameters.
//
// Ownership: the layer outlives it.
class FakeQuantizedLayer : public Module {
 public:
  explicit FakeQuantizedLayer(const WeightedLayer& layer);
  kernels::ValueRange range() const;

 private:
  Variable forward(const Variable& input) override;
  void follow(const Tensor& input);

  const WeightedLayer& layer_;
  Variable range_;
};

}  // namespace ddprun::nn
