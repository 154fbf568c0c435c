#include "tests/unit/cuda/library_operands.h"
#include "tests/unit/cuda/module_calls.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;

namespace {

constexpr double eps = 1e-5;

// The shapes are (outer, channels, inner): rows that are aligned to 16 bytes and not, of one element, and so long that
// a channel has several parts, the last one shorter.
struct Channels {
  std::int64_t outer, channels, inner;
  Shape shape() const { return {outer, channels, inner}; }
};
Channels any_channels() {
  return GENERATE(Channels{4, 5, 16}, Channels{3, 7, 9}, Channels{33, 6, 1}, Channels{11, 2, 1608}, Channels{1, 3, 1});
}

DType any_type() {
  return GENERATE(from_range(std::begin(floating_types), std::end(floating_types)));
}

// Statistics and parameters of 16-bit images are float32, or 16-bit themselves.
DType parameter_type(DType dtype) {
  return dtype == DType::float64 ? dtype : GENERATE_COPY(DType::float32, dtype);
}

const kernels::Table& cpu() {
  return kernels::table(Device{});
}

// The values are far from zero, as only then the way in which the variance is computed matters.
Tensor images(const Channels& c, std::uint64_t seed, DType dtype) {
  Tensor x = random_tensor(c.shape(), seed, DType::float64);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] += 50.0 * static_cast<double>(i / c.inner % 2);
  return x.to(dtype);
}

}  // namespace

TEST_CASE("batch statistics are those of float64") {
  DeviceContext& device = context_of(0);
  const Channels c = any_channels();
  const DType dtype = any_type(), stored = dtype == DType::float64 ? dtype : DType::float32;
  const Tensor x = images(c, 1, dtype);
  const Shape channels{c.channels};
  const DeviceTensor mean(device, channels, stored), inverse(device, channels, stored);
  const DeviceTensor variance(device, channels, stored);
  batch_statistics(device, DeviceTensor(device, x).view(), c.outer, c.inner, eps, mean.view(), inverse.view(),
                   variance.view());
  Tensor expected_variance;
  const auto expected = cpu().batch_statistics(wide(x), c.outer, c.inner, eps, expected_variance);
  CAPTURE(name_of(dtype), c.outer, c.channels, c.inner);
  CHECK(difference(mean, expected.mean) < tolerance(stored));
  CHECK(difference(variance, expected_variance) < 2 * tolerance(stored));
  if (c.outer * c.inner > 1) CHECK(difference(inverse, expected.inverse) < 2 * tolerance(stored));
}

TEST_CASE("the inverse deviation is that of each variance") {
  DeviceContext& device = context_of(0);
  const DType dtype = any_type(), stored = dtype == DType::float64 ? dtype : DType::float32;
  Tensor variance = Tensor::zeros({5}, DType::float64);
  for (int i = 0; i < 5; ++i) variance.data<double>()[i] = i * 0.75;
  variance = variance.to(dtype);
  const DeviceTensor out(device, {5}, stored);
  inverse_deviation(device, DeviceTensor(device, variance).view(), eps, out.view());
  CHECK(difference(out, cpu().inverse_deviation(wide(variance), eps)) < tolerance(stored));
}

TEST_CASE("batch norm is that of float64, with parameters of either type") {
  DeviceContext& device = context_of(0);
  const Channels c = any_channels();
  const DType dtype = any_type(), stored = parameter_type(dtype);
  const Shape channels{c.channels};
  const Tensor x = random_tensor(c.shape(), 1, dtype), mean = random_tensor(channels, 2, stored);
  const Tensor inverse = random_tensor(channels, 3, stored), weight = random_tensor(channels, 4, stored);
  const Tensor bias = random_tensor(channels, 5, stored);
  const DeviceTensor y(device, c.shape(), dtype);
  batch_norm(device, DeviceTensor(device, x).view(), c.outer, c.inner, DeviceTensor(device, mean).view(),
             DeviceTensor(device, inverse).view(), DeviceTensor(device, weight).view(),
             DeviceTensor(device, bias).view(), y.view());
  CAPTURE(name_of(dtype), name_of(stored), c.outer, c.channels, c.inner);
  CHECK(difference(y, cpu().batch_norm(wide(x), c.outer, c.inner, {wide(mean), wide(inverse)}, wide(weight),
                                       wide(bias))) < tolerance(dtype));
}

TEST_CASE("the gradients of batch norm are those of float64") {
  DeviceContext& device = context_of(0);
  const Channels c = any_channels();
  const DType dtype = any_type(), stored = parameter_type(dtype);
  const bool training = GENERATE(false, true);
  const Shape channels{c.channels};
  const Tensor x = random_tensor(c.shape(), 1, dtype), grad = random_tensor(c.shape(), 2, dtype);
  const Tensor mean = random_tensor(channels, 3, stored), inverse = random_tensor(channels, 4, stored);
  const Tensor weight = random_tensor(channels, 5, stored);
  const DeviceTensor x_grad(device, c.shape(), dtype), weight_grad(device, channels, stored);
  const DeviceTensor bias_grad(device, channels, stored);
  batch_norm_backward(device, DeviceTensor(device, x).view(), DeviceTensor(device, grad).view(), c.outer, c.inner,
                      DeviceTensor(device, mean).view(), DeviceTensor(device, inverse).view(),
                      DeviceTensor(device, weight).view(), training, x_grad.view(), weight_grad.view(),
                      bias_grad.view());
  const auto expected = cpu().batch_norm_backward(wide(x), wide(grad), c.outer, c.inner, {wide(mean), wide(inverse)},
                                                  wide(weight), training);
  CAPTURE(name_of(dtype), name_of(stored), c.outer, c.channels, c.inner, training);
  CHECK(difference(x_grad, expected.x) < 2 * tolerance(dtype));
  CHECK(difference(weight_grad, expected.weight) < tolerance(stored));
  CHECK(difference(bias_grad, expected.bias) < tolerance(stored));
}
