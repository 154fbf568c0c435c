// Reductions on an emulated device: against a loop in double where the order of a sum is another one than the CPU's,
// against the CPU's bits elsewhere. The bits depend only on shapes, not on how memory is aligned.
#include <cmath>
#include <limits>

#include "worker/tensor/kernels.h"
#include "tests/support/numerics.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;
using kernels::Axis;

namespace {

const kernels::Table& cpu() {
  return kernels::table({});
}

// The axes have rows of a warp, of a block, of several segments; columns of a tile, of several tiles and segments, and
// packed; more of each than the grid has blocks.
const std::vector<Axis> axes{{0, 5, 1},    {3, 0, 1},     {3, 0, 4},    {1, 1, 1},     {5, 7, 1},
                             {19, 300, 1}, {3, 1030, 1},  {2, 1025, 1}, {1, 20001, 1}, {2, 3, 1},
                             {2, 9, 5},    {3, 40, 64},   {2, 10, 300}, {1, 700, 24},  {2, 517, 33},
                             {1, 1300, 8}, {70, 1030, 1}, {600, 40, 1}, {40, 12, 70}};

std::string to_string(const Axis& axis) {
  return ddprun::to_string(Shape{axis.outer, axis.n, axis.inner});
}

// Returns the distance between 1 and the next number; that of float32 for types that are computed in it.
double epsilon(DType stored) {
  switch (stored) {
    case DType::float64:
      return std::numeric_limits<double>::epsilon();
    case DType::bfloat16:
      return 0x1p-7;
    case DType::float16:
      return 0x1p-10;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}
double computed_epsilon(DType stored) {
  return epsilon(stored == DType::float64 ? DType::float64 : DType::float32);
}

// Returns the bound of the error of a sum of these magnitudes: each number is part of at most 64 roundings of the
// computation (32 in a thread and the combination of the threads), and the result is rounded once more.
double bound(DType dtype, DType result, double magnitudes, double sum) {
  return 64 * computed_epsilon(dtype) * magnitudes + epsilon(result) * std::abs(sum);
}

// The sum over n and that of the magnitudes, for each of (outer, inner).
struct Sums {
  std::vector<double> sum, magnitudes;
};
Sums exact_sums(const Tensor& x, const Axis& axis) {
  const std::vector<double> from = values(x);
  Sums sums{std::vector<double>(static_cast<std::size_t>(axis.outer * axis.inner)),
            std::vector<double>(static_cast<std::size_t>(axis.outer * axis.inner))};
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto to = static_cast<std::size_t>(i / (axis.n * axis.inner) * axis.inner + i % axis.inner);
    sums.sum[to] += from[static_cast<std::size_t>(i)];
    sums.magnitudes[to] += std::abs(from[static_cast<std::size_t>(i)]);
  }
  return sums;
}

void check_sums(const Tensor& result, const Sums& exact, DType dtype, const Tensor& before = {}) {
  const std::vector<double> own = values(result);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double start = before.defined() ? values(before)[i] : 0;
    INFO("element " << i);
    REQUIRE(std::abs(own[i] - start - exact.sum[i]) <=
            bound(dtype, result.dtype(), exact.magnitudes[i] + std::abs(start), exact.sum[i] + start));
  }
}

}  // namespace

TEST_CASE("sums along an axis are as exact as their bound, with the same bits at every alignment") {
  for (const DType dtype : floating_types) {
    for (const Axis& axis : axes) {
      INFO(name_of(dtype) << ", " << to_string(axis));
      const Tensor x = random_tensor({axis.outer, axis.n, axis.inner}, 1).to(dtype);
      const Tensor out = Tensor::zeros({axis.outer, axis.inner}, dtype);
      const DeviceTensor aligned(x), shifted(x, 1), first(out), second(out, 1);
      check(device_api().sum(test_device(), aligned.view(), axis, first.view()));
      check(device_api().sum(test_device(), shifted.view(), axis, second.view()));
      check_sums(first.read(), exact_sums(x, axis), dtype);
      CHECK(same_bits(first.read(), second.read()));
    }
  }
}

TEST_CASE("the maximum is the first of equals, and a NaN is larger than everything") {
  for (const DType dtype : floating_types) {
    for (const Axis& axis : axes) {
      if (axis.n == 0) continue;
      INFO(name_of(dtype) << ", " << to_string(axis));
      // There are few different values, so that many are equal.
      Tensor x = kernels::unary(kernels::Unary::clamp, random_tensor({axis.outer, axis.n, axis.inner}, 1),
                                {.a = -0.5, .b = 0.5});
      if (x.numel() > 200) {
        x.data<float>()[x.numel() / 3] = NAN;
        x.data<float>()[x.numel() / 2] = NAN;
      }
      x = x.to(dtype);
      Tensor expected = Tensor::empty({axis.outer, axis.inner}, dtype);
      Tensor expected_index = Tensor::empty({axis.outer, axis.inner}, DType::int64);
      const DeviceTensor on_x(x, 1), out(expected), index(expected_index);
      cpu().max(x, axis, expected, expected_index);
      check(device_api().max(test_device(), on_x.view(), axis, out.view(), index.view()));
      CHECK(same_values(out.read(), expected));
      CHECK(same_values(index.read(), expected_index));
    }
  }
}

TEST_CASE("a row of infinities has its first one as the maximum") {
  const Tensor x = Tensor::full({2, 50}, -INFINITY);
  const DeviceTensor on_x(x), out(Tensor::zeros({2})), index(Tensor::full({2}, 9, DType::int64));
  check(device_api().max(test_device(), on_x.view(), {2, 50, 1}, out.view(), index.view()));
  CHECK(same_values(index.read(), Tensor::zeros({2}, DType::int64)));
}

TEST_CASE("the range of values is that of the CPU") {
  for (const std::int64_t count : {0, 1, 5, 8192, 8193, 30000}) {
    INFO(count);
    Tensor x = random_tensor({count}, 1);
    if (count > 1) x.data<float>()[count - 1] = 50;
    const kernels::ValueRange expected = cpu().value_range(x);
    const DeviceTensor on_x(x), range(Tensor::zeros({2}));
    check(device_api().value_range(test_device(), on_x.view(), range.view()));
    CHECK(same_bits(range.read(), Tensor::from(std::vector<float>{expected.min, expected.max}, {2})));
  }
  const DeviceTensor x(Tensor::zeros({4}, DType::float64)), range(Tensor::zeros({2}));
  CHECK_THROWS_WITH(check(device_api().value_range(test_device(), x.view(), range.view())),
                    "value_range of float64 tensors is not supported on cuda:0");
}

namespace {

// Returns the softmax in double of the stored values; log: its logarithm.
std::vector<double> exact_softmax(const Tensor& x, std::int64_t n, bool log) {
  std::vector<double> result = values(x);
  for (std::size_t row = 0; row < result.size(); row += static_cast<std::size_t>(n)) {
    double highest = -INFINITY, total = 0;
    for (std::int64_t i = 0; i < n; ++i) highest = std::max(highest, result[row + static_cast<std::size_t>(i)]);
    for (std::int64_t i = 0; i < n; ++i) total += std::exp(result[row + static_cast<std::size_t>(i)] - highest);
    for (std::int64_t i = 0; i < n; ++i) {
      double& value = result[row + static_cast<std::size_t>(i)];
      value = log ? value - highest - std::log(total) : std::exp(value - highest) / total;
    }
  }
  return result;
}

std::vector<double> exact_softmax_gradient(const Tensor& y, const Tensor& grad, std::int64_t n, bool log) {
  const std::vector<double> value = values(y);
  std::vector<double> result = values(grad);
  for (std::size_t row = 0; row < result.size(); row += static_cast<std::size_t>(n)) {
    double total = 0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(n); ++i) total += result[i] * (log ? 1 : value[i]);
    for (std::size_t i = row; i < row + static_cast<std::size_t>(n); ++i)
      result[i] = log ? result[i] - std::exp(value[i]) * total : value[i] * (result[i] - total);
  }
  return result;
}

}  // namespace

TEST_CASE("softmax and its gradient are within some roundings of the exact ones") {
  for (const DType dtype : floating_types) {
    for (const Shape& shape :
         {Shape{0, 5}, Shape{1, 1}, Shape{9, 10}, Shape{3, 1000}, Shape{2, 1501}, Shape{70, 1030}}) {
      for (const bool log : {false, true}) {
        INFO(name_of(dtype) << ", " << ddprun::to_string(shape) << (log ? ", log" : ""));
        const Axis rows{shape[0], shape[1], 1};
        const Tensor x = random_tensor(shape, 1).to(dtype), grad = random_tensor(shape, 2).to(dtype);
        const DeviceTensor on_x(x), shifted_x(x, 1), on_grad(grad), shifted_grad(grad, 1);
        const DeviceTensor y(x), other_y(x, 1), out(x), other_out(x, 3);
        check(device_api().softmax(test_device(), on_x.view(), rows, log, y.view()));
        check(device_api().softmax(test_device(), shifted_x.view(), rows, log, other_y.view()));
        // A logarithm of a share rounds like its own magnitude, of which difference() takes the largest.
        const double most = 64 * computed_epsilon(dtype) + epsilon(dtype);
        CHECK(difference(values(y.read()), exact_softmax(x, shape[1], log)) <= most);
        CHECK(same_bits(y.read(), other_y.read()));
        check(device_api().softmax_gradient(test_device(), y.view(), on_grad.view(), rows, log, out.view()));
        check(device_api().softmax_gradient(test_device(), other_y.view(), shifted_grad.view(), rows, log,
                                            other_out.view()));
        CHECK(difference(values(out.read()), exact_softmax_gradient(y.read(), grad, shape[1], log)) <= most);
        CHECK(same_bits(out.read(), other_out.read()));
      }
    }
  }
}

TEST_CASE("softmax keeps what is infinite or no number as the CPU does") {
  const Tensor x = Tensor::from(
      std::vector<float>{1, -INFINITY, 2, NAN, 1, 2, INFINITY, 1, 2, -INFINITY, -INFINITY, -INFINITY}, {4, 3});
  Tensor expected = Tensor::empty_like(x);
  cpu().softmax(x, {4, 3, 1}, false, expected);
  const DeviceTensor on_x(x), y(x);
  check(device_api().softmax(test_device(), on_x.view(), {4, 3, 1}, false, y.view()));
  const std::vector<double> own = values(y.read()), of_cpu = values(expected);
  for (std::size_t i = 0; i < own.size(); ++i) {
    INFO(i);
    CHECK(std::isnan(own[i]) == std::isnan(of_cpu[i]));
    if (!std::isnan(own[i])) CHECK(own[i] == Approx(of_cpu[i]));
  }
}

TEST_CASE("add_bias gives the CPU's bits") {
  for (const DType dtype : floating_types) {
    for (const Axis& axis : {Axis{0, 3, 1}, Axis{7, 10, 1}, Axis{5, 64, 1}, Axis{2, 3, 25}, Axis{2, 3, 48}}) {
      for (const std::int64_t shift : {0, 1}) {
        INFO(name_of(dtype) << ", " << to_string(axis) << " from " << shift);
        const Tensor wide_bias = random_tensor({axis.n}, 2, dtype == DType::float64 ? dtype : DType::float32);
        for (const Tensor& bias : {wide_bias, wide_bias.to(dtype)}) {
          Tensor x = random_tensor({axis.outer, axis.n, axis.inner}, 1).to(dtype);
          const DeviceTensor on_x(x, shift), on_bias(bias);
          cpu().add_bias(x, bias, axis.outer, axis.inner);
          check(device_api().add_bias(test_device(), on_x.view(), on_bias.view(), axis.outer, axis.inner));
          CHECK(same_values(on_x.read(), x));
        }
      }
    }
  }
}

TEST_CASE("sums to a bias are as exact as their bound, added to what is there where asked for") {
  for (const DType dtype : floating_types) {
    for (const Axis& axis : {Axis{0, 3, 1}, Axis{9, 10, 1}, Axis{600, 64, 1}, Axis{4, 3, 50}, Axis{3, 2, 9000}}) {
      for (const bool accumulate : {false, true}) {
        for (const DType to : {dtype, dtype == DType::float64 ? dtype : DType::float32}) {
          INFO(name_of(dtype) << " to " << name_of(to) << ", " << to_string(axis) << (accumulate ? ", added" : ""));
          const Tensor grad = random_tensor({axis.outer, axis.n, axis.inner}, 1).to(dtype);
          const Tensor before = random_tensor({axis.n}, 2).to(to);
          const DeviceTensor on_grad(grad), shifted_grad(grad, 1), out(before), other(before, 1);
          check(
              device_api().sum_to_bias(test_device(), on_grad.view(), axis.outer, axis.inner, out.view(), accumulate));
          check(device_api().sum_to_bias(test_device(), shifted_grad.view(), axis.outer, axis.inner, other.view(),
                                         accumulate));
          const Tensor by_channel = grad.permute({1, 0, 2}).contiguous();
          check_sums(out.read(), exact_sums(by_channel, {axis.n, axis.outer * axis.inner, 1}), dtype,
                     accumulate ? before : Tensor());
          CHECK(same_bits(out.read(), other.read()));
        }
      }
    }
  }
}
