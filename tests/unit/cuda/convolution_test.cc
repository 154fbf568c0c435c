#include "tests/unit/cuda/convolution_shapes.h"
#include "tests/unit/cuda/library_operands.h"
#include "tests/unit/cuda/module_calls.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;
using kernels::ConvGeometry;

namespace {

ConvolutionShape any_shape() {
  return GENERATE(ConvolutionShape{.kernel = 1}, ConvolutionShape{.kernel = 3},
                  ConvolutionShape{.kernel = 3, .padding = 1}, ConvolutionShape{.kernel = 3, .stride = 2, .padding = 1},
                  ConvolutionShape{.kernel = 5, .stride = 3, .padding = 2},
                  ConvolutionShape{.kernel = 3, .padding = 2, .dilation = 2},
                  ConvolutionShape{.kernel = 3, .padding = 1, .groups = 2},
                  ConvolutionShape{.kernel = 2, .stride = 2, .dilation = 3, .groups = 2},
                  ConvolutionShape{.kernel = 1, .stride = 2});
}

const kernels::Table& cpu() {
  return kernels::table(Device{});
}

}  // namespace

TEST_CASE("convolutions and their gradients are those of float64") {
  DeviceContext& device = context_of(0);
  const ConvGeometry g = geometry_of(any_shape());
  const DType dtype = GENERATE(from_range(std::begin(floating_types), std::end(floating_types)));
  const Tensor x = random_tensor(image(g), 1, dtype), w = random_tensor(weight(g), 2, dtype);
  const Tensor grad = random_tensor(result(g), 3, dtype);
  const DeviceTensor device_x(device, x), device_w(device, w), device_grad(device, grad);
  CAPTURE(name_of(dtype), g.kernel_h, g.stride, g.padding, g.dilation, g.groups);
  SECTION("forward") {
    const Tensor bias = GENERATE(false, true) ? random_tensor({g.out_channels}, 4, dtype) : Tensor();
    const DeviceTensor y(device, result(g), dtype);
    if (bias.defined())
      conv2d(device, g, device_x.view(), device_w.view(), DeviceTensor(device, bias).view(), y.view());
    else
      conv2d(device, g, device_x.view(), device_w.view(), {}, y.view());
    CHECK(difference(y, cpu().conv2d(g, wide(x), wide(w), wide(bias))) < tolerance(dtype));
  }
  SECTION("gradient of the input") {
    const DeviceTensor x_grad(device, image(g), dtype);
    conv2d_backward_input(device, g, device_grad.view(), device_w.view(), x_grad.view());
    CHECK(difference(x_grad, cpu().conv2d_backward_input(g, wide(grad), wide(w))) < tolerance(dtype));
  }
  SECTION("gradient of the weight, also added to another one, also of float32") {
    const bool accumulate = GENERATE(false, true);
    const DType stored = GENERATE_COPY(dtype, DType::float32);
    if (dtype == DType::float64 && stored != dtype) return;
    const Tensor before = accumulate ? random_tensor(weight(g), 5, stored) : Tensor::zeros(weight(g), stored);
    const DeviceTensor w_grad = accumulate ? DeviceTensor(device, before) : DeviceTensor(device, weight(g), stored);
    conv2d_backward_weight(device, g, device_x.view(), device_grad.view(), w_grad.view(), accumulate);
    Tensor expected = wide(before).clone();
    cpu().conv2d_backward_weight(g, wide(x), wide(grad), expected, true);
    CHECK(difference(w_grad, expected) < tolerance(dtype));
  }
}

TEST_CASE("gradients of convolutions have the same bits every time") {
  DeviceContext& device = context_of(0);
  const ConvGeometry g = geometry_of({.kernel = 3, .padding = 1});
  const DeviceTensor x(device, random_tensor(image(g), 1, DType::float32));
  const DeviceTensor w(device, random_tensor(weight(g), 2, DType::float32));
  const DeviceTensor grad(device, random_tensor(result(g), 3, DType::float32));
  const auto gradients = [&] {
    const DeviceTensor x_grad(device, image(g), DType::float32), w_grad(device, weight(g), DType::float32);
    conv2d_backward_input(device, g, grad.view(), w.view(), x_grad.view());
    conv2d_backward_weight(device, g, x.view(), grad.view(), w_grad.view(), false);
    return std::pair(x_grad.to_host(), w_grad.to_host());
  };
  const auto first = gradients();
  for (int i = 0; i < 3; ++i) {
    const auto again = gradients();
    CHECK(same_bits(first.first, again.first));
    CHECK(same_bits(first.second, again.second));
  }
}

TEST_CASE("a convolution of no images is nothing, and its weight has no gradient") {
  DeviceContext& device = context_of(0);
  ConvGeometry g = geometry_of({});
  g.batch = 0;
  const DeviceTensor x(device, image(g), DType::float32), y(device, result(g), DType::float32);
  const DeviceTensor w(device, random_tensor(weight(g), 1, DType::float32)), w_grad(device, weight(g), DType::float32);
  CHECK_NOTHROW(conv2d(device, g, x.view(), w.view(), {}, y.view()));
  CHECK_NOTHROW(conv2d_backward_input(device, g, y.view(), w.view(), x.view()));
  conv2d_backward_weight(device, g, x.view(), y.view(), w_grad.view(), false);
  CHECK(difference(w_grad, Tensor::zeros(weight(g))) == 0);
}
