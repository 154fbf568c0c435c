#include "ddprun/worker/autograd/ops/conv.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/tape.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {
namespace {

using kernels::ConvGeometry;
using kernels::PoolGeometry;

std::int64_t windows(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const std::int64_t room = size + 2 * padding - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

void check_bias(const Variable& weight, const Variable& bias) {
  if (!bias.defined() || (bias.shape() == Shape{weight.shape()[0]} && bias.dtype() == weight.dtype())) return;
  throw make_error(Errc::mismatch, "conv2d: a bias of shape {} does not fit a weight of shape {}",
                   to_string(bias.shape()), to_string(weight.shape()));
}

ConvGeometry conv_geometry(const Variable& input, const Variable& weight, ConvOptions options) {
  const Shape &x = input.shape(), &w = weight.shape();
  if (x.size() != 4 || w.size() != 4 || x[1] != w[1] || input.dtype() != weight.dtype()) {
    throw make_error(Errc::mismatch, "conv2d: {} input of shape {} does not fit a {} weight of shape {}",
                     name_of(input.dtype()), to_string(x), name_of(weight.dtype()), to_string(w));
  }
  if (options.stride < 1 || options.padding < 0) {
    throw make_error(Errc::usage, "conv2d: stride {} and padding {}: a stride is at least 1, a padding at least 0",
                     options.stride, options.padding);
  }
  const ConvGeometry geometry{.batch = x[0],
                              .in_channels = x[1],
                              .height = x[2],
                              .width = x[3],
                              .out_channels = w[0],
                              .kernel_h = w[2],
                              .kernel_w = w[3],
                              .stride = options.stride,
                              .padding = options.padding,
                              .out_h = windows(x[2], w[2], options.stride, options.padding),
                              .out_w = windows(x[3], w[3], options.stride, options.padding)};
  if (geometry.out_h < 1 || geometry.out_w < 1) {
    throw make_error(Errc::mismatch, "conv2d: a weight of shape {} is larger than the padded input of shape {}",
                     to_string(w), to_string(x));
  }
  return geometry;
}

void add_weight_gradient(autograd::Backward& pass, const ConvGeometry& geometry, const Tensor& x, const Shape& shape) {
  if (!pass.wants(1)) return;
  if (Tensor sum = pass.accumulator(1); sum.defined()) {
    kernels::conv2d_backward_weight(geometry, x, pass.grad(), sum, true);
    return;
  }
  Tensor gradient = Tensor::empty(shape, x.dtype());
  kernels::conv2d_backward_weight(geometry, x, pass.grad(), gradient, false);
  pass.add(1, std::move(gradient));
}

void add_bias_gradient(autograd::Backward& pass, const ConvGeometry& geometry) {
  if (!pass.wants(2)) return;
  const std::int64_t inner = geometry.out_h * geometry.out_w;
  if (Tensor sum = pass.accumulator(2); sum.defined()) {
    kernels::sum_to_bias(pass.grad(), geometry.batch, inner, sum, true);
    return;
  }
  Tensor gradient = Tensor::empty({geometry.out_channels}, pass.grad().dtype());
  kernels::sum_to_bias(pass.grad(), geometry.batch, inner, gradient, false);
  pass.add(2, std::move(gradient));
}

PoolGeometry pool_geometry(const Shape& x, PoolOptions options) {
  if (options.stride == 0) options.stride = options.kernel;
  if (options.kernel < 1 || options.stride < 1 || options.padding < 0 || options.padding > options.kernel / 2) {
    throw make_error(Errc::usage,
                     "max_pool2d: kernel {}, stride {}, padding {}: the padding is at most half the kernel",
                     options.kernel, options.stride, options.padding);
  }
  if (x.size() != 4 || x[2] + 2 * options.padding < options.kernel || x[3] + 2 * options.padding < options.kernel) {
    throw make_error(Errc::mismatch, "max_pool2d: a window of {} does not fit an input of shape {}", options.kernel,
                     to_string(x));
  }
  return {.planes = x[0] * x[1],
          .height = x[2],
          .width = x[3],
          .kernel = options.kernel,
          .stride = options.stride,
          .padding = options.padding,
          .out_h = windows(x[2], options.kernel, options.stride, options.padding),
          .out_w = windows(x[3], options.kernel, options.stride, options.padding)};
}

}  // namespace

Variable conv2d(const Variable& input, const Variable& weight, const Variable& bias, ConvOptions options) {
  const ConvGeometry geometry = conv_geometry(input, weight, options);
  check_bias(weight, bias);
  Tensor value = kernels::conv2d(geometry, input.value(), weight.value(), bias.value());
  return autograd::record(std::move(value), {input, weight, bias},
                          [geometry, x = input.value(), w = weight.value()](autograd::Backward& pass) {
                            add_bias_gradient(pass, geometry);
                            add_weight_gradient(pass, geometry, x, w.shape());
                            if (pass.wants(0)) pass.add(0, kernels::conv2d_backward_input(geometry, pass.grad(), w));
                          });
}

Variable max_pool2d(const Variable& input, PoolOptions options) {
  const Shape& shape = input.shape();
  const PoolGeometry geometry = pool_geometry(shape, options);
  Tensor index;
  Tensor value =
      kernels::max_pool2d(geometry, input.value(), {shape[0], shape[1], geometry.out_h, geometry.out_w}, index);
  return autograd::record(std::move(value), {input}, [geometry, index, shape](autograd::Backward& pass) {
    pass.add(0, kernels::max_pool2d_backward(geometry, pass.grad(), index, shape));
  });
}

}  // namespace ddprun
