#include "worker/nn/quantization/quantized_conv2d.h"

namespace ddprun::nn {

Tensor QuantizedConv2d::product(const Tensor& input, const kernels::Levels& levels) {
  return kernels::of(input).quantized_conv2d(conv_geometry(input.shape(), weight().shape(), options_), input, levels,
                                             weight(), weight_sum(), scale(), bias());
}

}  // namespace ddprun::nn
