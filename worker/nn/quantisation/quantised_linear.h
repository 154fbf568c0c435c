#pragma once

#include "ddprun/worker/nn/quantisation/quantised_layer.h"

namespace ddprun::nn {

// A Linear or Conv1D in int8: (..., in) -> (..., out) in float32. The weight is (out, in).
class QuantisedLinear : public QuantisedLayer {
 public:
  QuantisedLinear(const WeightedLayer& linear, std::optional<kernels::ValueRange> input)
      : QuantisedLayer(linear, input) {}

 private:
  Tensor product(const Tensor& input, const kernels::Levels& levels) override;
};

}  // namespace ddprun::nn
