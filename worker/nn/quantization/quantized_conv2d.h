#pragma once

#include "worker/autograd/ops/conv.h"
#include "worker/nn/quantization/quantized_layer.h"

namespace ddprun::nn {

// A Conv2d in int8: (batch, in, height, width) -> (batch, out, oh, ow) in float32, with every option that conv2d() has.
// The weight is (out, in / groups, kernel, kernel).
class QuantizedConv2d : public QuantizedLayer {
 public:
  QuantizedConv2d(const WeightedLayer& convolution, const ConvOptions& options,
                  std::optional<kernels::ValueRange> input)
      : QuantizedLayer(convolution, input), options_(options) {}

 private:
  Tensor product(const Tensor& input, const kernels::Levels& levels) override;

  ConvOptions options_;
};

}  // namespace ddprun::nn
