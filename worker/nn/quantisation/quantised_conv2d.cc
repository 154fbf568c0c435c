#include "ddprun/worker/nn/quantisation/quantised_conv2d.h"

namespace ddprun::nn {

Tensor QuantisedConv2d::product(const Tensor& input, const kernels::Levels& levels) {
  return kernels::of(input).quantised_conv2d(conv_geometry(input.shape(), weight().shape(), options_), input, levels,
                                             weight(), weight_sum(), scale(), bias());
}

}  // namespace ddprun::nn
