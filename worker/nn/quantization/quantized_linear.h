#pragma once

#include "worker/nn/quantization/quantized_layer.h"

namespace ddprun::nn {

// A Linear or Conv1D in int8: (..., in) -> (..., out) in float32. The weight is (out, in).
class QuantizedLinear : public QuantizedLayer {
 public:
  QuantizedLinear(const WeightedLayer& linear, std::optional<kernels::ValueRange> input)
      : QuantizedLayer(linear, input) {}

 private:
  Tensor product(const Tensor& input, const kernels::Levels& levels) override;
};

}  // namespace ddprun::nn
