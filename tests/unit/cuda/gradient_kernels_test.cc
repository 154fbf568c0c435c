// Operations on all gradients at once on an emulated device: the sum of their squares, clipping, unscaling.
#include <cmath>
#include <limits>

#include "worker/tensor/kernels.h"
#include "tests/unit/cuda/tensor_lists.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

double square_sum(const TensorList& tensors) {
  const DeviceTensor sum(Tensor::zeros({}, DType::float64));
  check(device_api().square_sum(test_device(), tensors.size(), tensors.views(), sum.view()));
  return sum.read().item();
}

double expected_square_sum(const TensorList& tensors) {
  double sum = 0;
  for (const Tensor& tensor : tensors.host) {
    const Tensor wide = tensor.to(DType::float64);
    for (std::int64_t i = 0; i < wide.numel(); ++i) sum += wide.data<double>()[i] * wide.data<double>()[i];
  }
  return sum;
}

// Computes x = function(x), on the host.
void apply(kernels::Unary function, const kernels::Arguments& arguments, std::vector<Tensor>& tensors) {
  for (Tensor& tensor : tensors) kernels::of(tensor).unary(function, arguments, tensor, tensor);
}

// Returns small whole numbers, the sums of whose squares are exact in any order.
TensorList whole_numbers(DType dtype) {
  std::vector<Tensor> tensors;
  for (const std::int64_t extent : {5, 0, 9000, 3}) {
    Tensor tensor = Tensor::empty({extent}, DType::float32);
    for (std::int64_t i = 0; i < extent; ++i) tensor.data<float>()[i] = static_cast<float>(i * 7 % 5 - 2);
    tensors.push_back(tensor.to(dtype));
  }
  return TensorList(tensors);
}

void clip(const TensorList& tensors, double max_norm, double sum_of_squares) {
  const DeviceTensor sum(Tensor::full({}, sum_of_squares, DType::float64));
  check(device_api().clip_to_norm(test_device(), tensors.size(), tensors.views(), max_norm, sum.view()));
}

// Returns the flag that a value was not finite, 0 or 1.
double unscale(const TensorList& tensors, double scale) {
  const DeviceTensor found(Tensor::full({}, 5, DType::float32)), by(Tensor::full({}, scale, DType::float64));
  check(device_api().unscale(test_device(), tensors.size(), tensors.views(), by.view(), found.view()));
  return found.read().item();
}

}  // namespace

TEST_CASE("the sum of squares of all elements of all tensors is taken in double") {
  const TensorList tensors(random_tensors(1, floating_types));
  const double expected = expected_square_sum(tensors), found = square_sum(tensors);
  CHECK(std::abs(found - expected) < 1e-12 * expected);
  const TensorList large({Tensor::full({3}, 3e38), Tensor::full({1}, 1e-30)});
  CHECK(square_sum(large) == expected_square_sum(large));
  CHECK(square_sum(TensorList({})) == 0);
  CHECK(square_sum(TensorList({Tensor::zeros({0})})) == 0);
}

TEST_CASE("the sum of squares has the same bits wherever tensors lie, and whatever other threads are ahead") {
  const std::vector<Tensor> some{random_tensor({20001}, 1), random_tensor({19}, 2)};
  const std::vector<Tensor> shifted{Tensor::zeros({0}), some[0], some[1]};  // the second of a list is not aligned
  const double sum = square_sum(TensorList(some));
  for (int i = 0; i < 4; ++i) CHECK(square_sum(TensorList(shifted)) == sum);
}

TEST_CASE("a NaN or an infinity is passed on to the sum of squares") {
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Tensor last = Tensor::zeros({8193});
    last.data<float>()[8192] = value;
    CHECK(std::isnan(square_sum(TensorList({Tensor::zeros({3}), last}))) == std::isnan(value));
    CHECK_FALSE(std::isfinite(square_sum(TensorList({last, Tensor::zeros({3})}))));
  }
}

TEST_CASE("gradients are clipped to a norm that the device knows, with the bits of the host's clipping") {
  for (const DType dtype : floating_types) {
    INFO(name_of(dtype));
    TensorList tensors = whole_numbers(dtype);
    const double sum = square_sum(tensors);
    clip(tensors, std::sqrt(sum) + 1, sum);
    CHECK(tensors.differences() == 0);
    clip(tensors, 3, sum);
    apply(kernels::Unary::scale, {.a = 3 / (std::sqrt(sum) + 1e-6)}, tensors.host);
    CHECK(tensors.differences() == 0);
  }
}

TEST_CASE("gradients whose norm is not finite become zero or NaN") {
  const TensorList to_zero = whole_numbers(DType::float32), to_nan = whole_numbers(DType::float32);
  clip(to_zero, 1, std::numeric_limits<double>::infinity());
  clip(to_nan, 1, std::numeric_limits<double>::quiet_NaN());
  CHECK(to_zero.read()[2].to(DType::float64).data<double>()[8999] == 0);
  CHECK(std::isnan(to_nan.read()[2].data<float>()[8999]));
}

TEST_CASE("gradients are clipped to a value, with the bits of the host's clipping") {
  TensorList tensors(random_tensors(1, floating_types));
  check(device_api().clip_to_value(test_device(), tensors.size(), tensors.views(), 0.3));
  apply(kernels::Unary::clamp, {.a = -0.3, .b = 0.3}, tensors.host);
  CHECK(tensors.differences() == 0);
}

TEST_CASE("gradients are divided by a scale, with the host's bits, and all are finite") {
  TensorList tensors(random_tensors(1, floating_types));
  CHECK(unscale(tensors, 48) == 0);
  apply(kernels::Unary::scale, {.a = 1.0 / 48}, tensors.host);
  CHECK(tensors.differences() == 0);
  CHECK(unscale(TensorList({}), 8) == 0);
}

TEST_CASE("one element that is not finite is found wherever it is") {
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::int64_t at : {0, 255, 8191, 8192, 20000}) {
      INFO(value << " at " << at);
      Tensor tensor = Tensor::zeros({20001});
      tensor.data<float>()[at] = value;
      CHECK(unscale(TensorList({Tensor::zeros({5}), tensor, Tensor::zeros({9})}), 2) == 1);
    }
  }
  Tensor narrow = Tensor::zeros({9}, DType::float16);
  narrow.slice(0, 8, 1).fill(std::numeric_limits<double>::infinity());
  CHECK(unscale(TensorList({Tensor::zeros({5}), narrow}), 2) == 1);
}

TEST_CASE("the gradients of a GPT of 12 blocks are unscaled, summed up and clipped by few kernels") {
  std::vector<Tensor> all;
  for (int i = 0; i < 148; ++i) all.push_back(random_tensor({8}, static_cast<std::uint64_t>(i)));
  const TensorList tensors(all);
  const DeviceTensor sum(Tensor::zeros({}, DType::float64)), found(Tensor::zeros({})),
      scale(Tensor::full({}, 2, DType::float64));
  CHECK(launches_of([&] {
          return device_api().unscale(test_device(), tensors.size(), tensors.views(), scale.view(), found.view());
        }) == 1);
  CHECK(launches_of(
            [&] { return device_api().square_sum(test_device(), tensors.size(), tensors.views(), sum.view()); }) == 2);
  CHECK(launches_of([&] {
          return device_api().clip_to_norm(test_device(), tensors.size(), tensors.views(), 1, sum.view());
        }) == 1);
}
