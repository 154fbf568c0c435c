#include "worker/autograd/ops/conv.h"

#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/mapped.h"

namespace ddprun {
namespace {

using kernels::ConvGeometry;
using kernels::PoolGeometry;

thread_local bool winograd_allowed = false;

// Returns the number of windows of an extent along one direction.
std::int64_t windows(std::int64_t size, std::int64_t extent, std::int64_t stride, std::int64_t padding) {
  const std::int64_t last = size + 2 * padding - extent;
  return last < 0 ? 0 : last / stride + 1;
}

void check_bias(const Variable& weight, const Variable& bias) {
  if (!bias.defined() || (bias.shape() == Shape{weight.shape()[0]} && bias.dtype() == weight.dtype())) return;
  throw make_error(Errc::mismatch, "conv2d: a bias of shape {} does not fit a weight of shape {}",
                   to_string(bias.shape()), to_string(weight.shape()));
}

void add_weight_gradient(autograd::Backward& pass, const ConvGeometry& geometry, const Tensor& x, const Shape& shape) {
  autograd::add_computed(pass, 1, shape, [&](Tensor& out, bool accumulate) {
    kernels::of(x).conv2d_backward_weight(geometry, x, pass.dense_grad(), out, accumulate);
  });
}

void add_bias_gradient(autograd::Backward& pass, const ConvGeometry& geometry) {
  autograd::add_computed(pass, 2, {geometry.out_channels}, [&](Tensor& out, bool accumulate) {
    kernels::of(out).sum_to_bias(pass.grad(), geometry.batch, geometry.out_h * geometry.out_w, out, accumulate);
  });
}

PoolGeometry pool_geometry(const char* name, const Shape& x, PoolOptions options) {
  if (options.stride == 0) options.stride = options.kernel;
  if (options.kernel < 1 || options.stride < 1 || options.padding < 0 || options.padding > options.kernel / 2) {
    throw make_error(Errc::usage, "{}: kernel {}, stride {}, padding {}: the padding is at most half the kernel", name,
                     options.kernel, options.stride, options.padding);
  }
  if (x.size() != 4 || x[2] + 2 * options.padding < options.kernel || x[3] + 2 * options.padding < options.kernel) {
    throw make_error(Errc::mismatch, "{}: a window of {} does not fit an input of shape {}", name, options.kernel,
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

WinogradScope::WinogradScope(bool allowed) : allowed_(allowed), before_(std::exchange(winograd_allowed, allowed)) {}
WinogradScope::~WinogradScope() {
  winograd_allowed = before_;
}

bool WinogradScope::allowed() {
  return winograd_allowed;
}

autograd::ContextScope::Maker WinogradScope::maker() const {
  return [allowed = allowed_] { return std::make_shared<WinogradScope>(allowed); };
}

kernels::ConvGeometry conv_geometry(const Shape& x, const Shape& w, const ConvOptions& options) {
  if (x.size() != 4 || w.size() != 4 || options.groups < 1 || x[1] != w[1] * options.groups ||
      w[0] % options.groups != 0) {
    throw make_error(Errc::mismatch, "conv2d: an input of shape {} does not fit a weight of shape {}", to_string(x),
                     to_string(w));
  }
  if (options.stride < 1 || options.padding < 0 || options.dilation < 1) {
    throw make_error(Errc::usage,
                     "conv2d: stride {}, padding {}, dilation {}: stride and dilation are at least 1, a padding at "
                     "least 0",
                     options.stride, options.padding, options.dilation);
  }
  const ConvGeometry geometry{
      .batch = x[0],
      .in_channels = x[1],
      .height = x[2],
      .width = x[3],
      .out_channels = w[0],
      .kernel_h = w[2],
      .kernel_w = w[3],
      .stride = options.stride,
      .padding = options.padding,
      .out_h = windows(x[2], (w[2] - 1) * options.dilation + 1, options.stride, options.padding),
      .out_w = windows(x[3], (w[3] - 1) * options.dilation + 1, options.stride, options.padding),
      .dilation = options.dilation,
      .groups = options.groups,
      .winograd = winograd_allowed};
  if (geometry.out_h < 1 || geometry.out_w < 1) {
    throw make_error(Errc::mismatch, "conv2d: a weight of shape {} is larger than the padded input of shape {}",
                     to_string(w), to_string(x));
  }
  return geometry;
}

Variable conv2d(const Variable& given_input, const Variable& given_weight, const Variable& given_bias,
                ConvOptions options) {
  const auto [input, weight, bias] =
      autograd::autocast(autograd::CastClass::lower, given_input, given_weight, given_bias);
  const autograd::Function operation("conv2d", {input, weight, bias});
  autograd::check_same_dtype("conv2d", input.value(), weight.value());
  const ConvGeometry geometry = conv_geometry(input.shape(), weight.shape(), options);
  check_bias(weight, bias);
  const Tensor x = input.value().dense(), w = weight.value().contiguous();
  Tensor value = operation.needs_value()
                     ? kernels::of(x).conv2d(geometry, x, w, bias.value())
                     : Tensor::empty({geometry.batch, geometry.out_channels, geometry.out_h, geometry.out_w}, x.dtype(),
                                     x.device());
  return operation.record(std::move(value), {x, w}, [geometry](autograd::Backward& pass) {
    const Tensor& saved_w = pass.saved(1);
    add_bias_gradient(pass, geometry);
    add_weight_gradient(pass, geometry, pass.saved(0), saved_w.shape());
    if (pass.wants(0)) pass.add(0, kernels::of(saved_w).conv2d_backward_input(geometry, pass.dense_grad(), saved_w));
  });
}

Variable max_pool2d(const Variable& input, PoolOptions options) {
  const autograd::Function operation("max_pool2d", {input});
  const Shape& shape = input.shape();
  const PoolGeometry geometry = pool_geometry("max_pool2d", shape, options);
  const Tensor x = input.value().contiguous();
  Tensor index;
  Tensor value = kernels::of(x).max_pool2d(geometry, x, {shape[0], shape[1], geometry.out_h, geometry.out_w}, index);
  return operation.record(std::move(value), {index}, [geometry, shape](autograd::Backward& pass) {
    pass.add(0, kernels::of(pass.grad()).max_pool2d_backward(geometry, pass.grad(), pass.saved(0), shape));
  });
}

Variable avg_pool2d(const Variable& input, PoolOptions options) {
  const autograd::Function operation("avg_pool2d", {input});
  const Shape& shape = input.shape();
  const PoolGeometry geometry = pool_geometry("avg_pool2d", shape, options);
  const Tensor x = input.value().contiguous();
  Tensor value = kernels::of(x).avg_pool2d(geometry, x, {shape[0], shape[1], geometry.out_h, geometry.out_w});
  return operation.record(std::move(value), {}, [geometry, shape](autograd::Backward& pass) {
    pass.add(0, kernels::of(pass.grad()).avg_pool2d_backward(geometry, pass.grad(), shape));
  });
}

Variable adaptive_avg_pool2d(const Variable& input, std::int64_t out_height, std::int64_t out_width) {
  const autograd::Function operation("adaptive_avg_pool2d", {input});
  const Shape& shape = input.shape();
  if (shape.size() != 4 || out_height < 1 || out_width < 1 || shape[2] < 1 || shape[3] < 1) {
    throw make_error(Errc::mismatch, "adaptive_avg_pool2d: {} x {} outputs for an input of shape {}", out_height,
                     out_width, to_string(shape));
  }
  const PoolGeometry geometry{.planes = shape[0] * shape[1],
                              .height = shape[2],
                              .width = shape[3],
                              .kernel = 0,
                              .stride = 0,
                              .padding = 0,
                              .out_h = out_height,
                              .out_w = out_width};
  const Tensor x = input.value().contiguous();
  Tensor value = kernels::of(x).adaptive_avg_pool2d(geometry, x, {shape[0], shape[1], out_height, out_width});
  return operation.record(std::move(value), {}, [geometry, shape](autograd::Backward& pass) {
    pass.add(0, kernels::of(pass.grad()).adaptive_avg_pool2d_backward(geometry, pass.grad(), shape));
  });
}

}  // namespace ddprun
