#pragma once

#include "worker/tensor/kernels.h"
#include "worker/tensor/tensor.h"

// The convolutions that tests compute.
namespace ddprun::cuda::testing {

struct ConvolutionShape {
  std::int64_t kernel = 3, stride = 1, padding = 0, dilation = 1, groups = 1;
};

// Returns the geometry of images of 9 x 8 with 4 channels, filtered to 6.
inline kernels::ConvGeometry geometry_of(const ConvolutionShape& o) {
  kernels::ConvGeometry g{.batch = 3,
                          .in_channels = 4,
                          .height = 9,
                          .width = 8,
                          .out_channels = 6,
                          .kernel_h = o.kernel,
                          .kernel_w = o.kernel,
                          .stride = o.stride,
                          .padding = o.padding,
                          .out_h = 0,
                          .out_w = 0,
                          .dilation = o.dilation,
                          .groups = o.groups};
  const auto outputs = [&](std::int64_t size) {
    return (size + 2 * o.padding - ((o.kernel - 1) * o.dilation + 1)) / o.stride + 1;
  };
  g.out_h = outputs(g.height);
  g.out_w = outputs(g.width);
  return g;
}

inline Shape image(const kernels::ConvGeometry& g) {
  return {g.batch, g.in_channels, g.height, g.width};
}
inline Shape weight(const kernels::ConvGeometry& g) {
  return {g.out_channels, g.in_channels / g.groups, g.kernel_h, g.kernel_w};
}
inline Shape result(const kernels::ConvGeometry& g) {
  return {g.batch, g.out_channels, g.out_h, g.out_w};
}

}  // namespace ddprun::cuda::testing
