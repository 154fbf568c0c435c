#include <limits>

#include "tests/unit/cuda/library_operands.h"
#include "tests/unit/cuda/module_calls.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;
using kernels::PoolGeometry;

namespace {

struct Options {
  std::int64_t kernel, stride, padding;
};

PoolGeometry geometry_of(const Options& o, std::int64_t height, std::int64_t width) {
  const auto outputs = [&](std::int64_t size) { return (size + 2 * o.padding - o.kernel) / o.stride + 1; };
  return {.planes = 6,
          .height = height,
          .width = width,
          .kernel = o.kernel,
          .stride = o.stride,
          .padding = o.padding,
          .out_h = outputs(height),
          .out_w = outputs(width)};
}

Options any_options() {
  return GENERATE(Options{2, 2, 0}, Options{3, 2, 1}, Options{3, 1, 1}, Options{2, 3, 0}, Options{5, 2, 2},
                  Options{1, 1, 0});
}

Shape in_shape(const PoolGeometry& g) {
  return {2, g.planes / 2, g.height, g.width};
}
Shape out_shape(const PoolGeometry& g) {
  return {2, g.planes / 2, g.out_h, g.out_w};
}

const kernels::Table& cpu() {
  return kernels::table(Device{});
}

DType any_type() {
  return GENERATE(from_range(std::begin(floating_types), std::end(floating_types)));
}

}  // namespace

TEST_CASE("max pooling finds the first maximum, and its gradient goes there") {
  DeviceContext& device = context_of(0);
  const PoolGeometry g = geometry_of(any_options(), 7, 10);
  const DType dtype = any_type();
  Tensor x = random_tensor(in_shape(g), 1, dtype);
  if (GENERATE(false, true)) x = x.to(DType::int32).to(dtype);  // many values are equal
  const Tensor grad = random_tensor(out_shape(g), 2, dtype);
  const DeviceTensor y(device, out_shape(g), dtype), index(device, out_shape(g), DType::int32);
  max_pool2d(device, g, DeviceTensor(device, x).view(), y.view(), index.view());
  Tensor expected_index;
  const Tensor expected = cpu().max_pool2d(g, wide(x), out_shape(g), expected_index);
  CAPTURE(name_of(dtype), g.kernel, g.stride, g.padding);
  CHECK(difference(y, expected) == 0);
  CHECK(same_bits(index.to_host(), expected_index));
  const DeviceTensor x_grad(device, in_shape(g), dtype);
  max_pool2d_backward(device, g, DeviceTensor(device, grad).view(), index.view(), x_grad.view());
  CHECK(difference(x_grad, cpu().max_pool2d_backward(g, wide(grad), expected_index, in_shape(g))) < tolerance(dtype));
}

TEST_CASE("a NaN is the maximum of its window, and infinities are numbers") {
  DeviceContext& device = context_of(0);
  const PoolGeometry g = geometry_of({2, 2, 0}, 2, 6);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  std::vector<float> plane{1, nan, -infinity, -infinity, infinity, 3, 2, 4, -infinity, -infinity, 1, 2};
  std::vector<float> planes;
  for (int i = 0; i < 6; ++i) planes.insert(planes.end(), plane.begin(), plane.end());
  const Tensor x = Tensor::from(planes, in_shape(g));
  const DeviceTensor y(device, out_shape(g), DType::float32), index(device, out_shape(g), DType::int32);
  max_pool2d(device, g, DeviceTensor(device, x).view(), y.view(), index.view());
  Tensor expected_index;
  cpu().max_pool2d(g, x, out_shape(g), expected_index);
  CHECK(same_bits(index.to_host(), expected_index));
  const Tensor found = y.to_host();
  CHECK(std::isnan(found.data<float>()[0]));
  CHECK(found.data<float>()[1] == -infinity);
  CHECK(found.data<float>()[2] == infinity);
}

TEST_CASE("average pooling counts the padding, and shares its gradient out") {
  DeviceContext& device = context_of(0);
  const PoolGeometry g = geometry_of(any_options(), 7, 10);
  const DType dtype = any_type();
  const Tensor x = random_tensor(in_shape(g), 1, dtype), grad = random_tensor(out_shape(g), 2, dtype);
  const DeviceTensor y(device, out_shape(g), dtype), x_grad(device, in_shape(g), dtype);
  avg_pool2d(device, g, DeviceTensor(device, x).view(), y.view());
  avg_pool2d_backward(device, g, DeviceTensor(device, grad).view(), x_grad.view());
  CAPTURE(name_of(dtype), g.kernel, g.stride, g.padding);
  CHECK(difference(y, cpu().avg_pool2d(g, wide(x), out_shape(g))) < tolerance(dtype));
  CHECK(difference(x_grad, cpu().avg_pool2d_backward(g, wide(grad), in_shape(g))) < tolerance(dtype));
}

TEST_CASE("adaptive average pooling divides a plane into any number of windows") {
  DeviceContext& device = context_of(0);
  PoolGeometry g{.planes = 6, .height = 7, .width = 10, .kernel = 0, .stride = 0, .padding = 0, .out_h = 0, .out_w = 0};
  std::tie(g.out_h, g.out_w) =
      GENERATE(std::tuple<std::int64_t, std::int64_t>(1, 1), std::tuple<std::int64_t, std::int64_t>(3, 4),
               std::tuple<std::int64_t, std::int64_t>(7, 10), std::tuple<std::int64_t, std::int64_t>(9, 13));
  const DType dtype = any_type();
  const Tensor x = random_tensor(in_shape(g), 1, dtype), grad = random_tensor(out_shape(g), 2, dtype);
  const DeviceTensor y(device, out_shape(g), dtype), x_grad(device, in_shape(g), dtype);
  adaptive_avg_pool2d(device, g, DeviceTensor(device, x).view(), y.view());
  adaptive_avg_pool2d_backward(device, g, DeviceTensor(device, grad).view(), x_grad.view());
  CAPTURE(name_of(dtype), g.out_h, g.out_w);
  CHECK(difference(y, cpu().adaptive_avg_pool2d(g, wide(x), out_shape(g))) < tolerance(dtype));
  CHECK(difference(x_grad, cpu().adaptive_avg_pool2d_backward(g, wide(grad), in_shape(g))) < tolerance(dtype));
}
