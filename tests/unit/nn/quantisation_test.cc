#include <cmath>

#include "ddprun/common/error.h"
#include "ddprun/worker/nn/layers.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/nn/quantisation/quantise.h"
#include "ddprun/worker/nn/quantisation/quantised_linear.h"
#include "ddprun/worker/nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

Tensor uniform(const Shape& shape, double low, double high, std::uint64_t seed = 1) {
  Generator generator(seed, 0);
  Tensor result = Tensor::empty(shape);
  for (std::int64_t i = 0; i < result.numel(); ++i)
    result.data<float>()[i] = static_cast<float>(low + (high - low) * generator.uniform());
  return result;
}

// Of two tensors, by the largest magnitude of the first.
double relative_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  double most = 0, difference = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    most = std::max<double>(most, std::abs(a.data<float>()[i]));
    difference = std::max<double>(difference, std::abs(a.data<float>()[i] - b.data<float>()[i]));
  }
  return difference / most;
}

std::unique_ptr<nn::Linear> linear_of(const Tensor& weight, bool bias = false) {
  Generator generator(3, 0);
  auto layer = std::make_unique<nn::Linear>(weight.size(1), weight.size(0), generator, bias);
  Tensor own = layer->parameter("weight").value();  // a handle
  own.copy_from(weight);
  return layer;
}

Tensor run(nn::Module& module, const Tensor& x) {
  const NoGradScope no_grad;
  return module(Variable(x)).value().contiguous();
}

std::unique_ptr<nn::Module> small_mlp() {
  Generator generator(5, 0);
  return nn::make_model("mlp", {.input = {1, 6, 6}, .outputs = 10, .hidden = {64, 32}}, generator);
}

}  // namespace

TEST_CASE("the range of values is that of all elements") {
  for (const std::int64_t count : {1, 15, 16, 33, 1000}) {
    Tensor x = uniform({count}, -1, 1);
    x.data<float>()[count - 1] = 5;
    x.data<float>()[count / 2] = -7;
    const auto [min, max] = kernels::of(x).value_range(x);
    CHECK(min == -7);
    CHECK(max == (count == 1 ? -7 : 5));
  }
}

TEST_CASE("a product of integers is exact, also where pairs of products are as large as they can be") {
  const std::int64_t rows = 5, depth = 100, outputs = 7;
  const float low = GENERATE(0.0F, -40.0F);
  CAPTURE(low);
  Tensor x = Tensor::full({rows, depth}, low + 127);
  Tensor weight = Tensor::full({outputs, depth}, 127);
  for (std::int64_t i = 0; i < depth; ++i) {
    x.data<float>()[i] = low + static_cast<float>(i % 128);
    weight.data<float>()[i] = static_cast<float>(i % 2 == 0 ? -127 : 3 * (i % 40));
  }
  x.data<float>()[0] = low;
  nn::QuantisedLinear quantised(*linear_of(weight), std::nullopt);
  const Tensor y = run(quantised, x);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < outputs; ++j) {
      double expected = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        expected += static_cast<double>(x.data<float>()[i * depth + k]) * weight.data<float>()[j * depth + k];
      CHECK(y.data<float>()[i * outputs + j] == Approx(expected).epsilon(1e-6));
    }
  }
}

TEST_CASE("a quantised layer gives what the layer gives, but for the rounding") {
  const Shape shape = GENERATE(Shape{9, 50}, Shape{3, 4, 50});
  const bool bias = GENERATE(true, false);
  const auto layer = linear_of(uniform({20, 50}, -0.3, 0.1), bias);
  const Tensor x = uniform(shape, -1, 3);
  const Tensor expected = run(*layer, x);
  nn::QuantisedLinear dynamic(*layer, std::nullopt), fixed(*layer, kernels::ValueRange{.min = -1, .max = 3});
  CHECK(relative_difference(expected, run(dynamic, x)) < 0.02);
  CHECK(relative_difference(expected, run(fixed, x)) < 0.02);
  // The scale is each output's own: a row a thousand times smaller is as exact.
  Tensor weight = layer->parameter("weight").value();
  for (std::int64_t i = 50; i < weight.numel(); ++i) weight.data<float>()[i] *= 1e-3F;
  const auto columns = [&](const Tensor& y) { return y.reshape({-1, 20}).slice(1, 1, 19).contiguous(); };
  if (!bias) {
    nn::QuantisedLinear small(*layer, std::nullopt);
    CHECK(relative_difference(columns(run(*layer, x)), columns(run(small, x))) < 0.02);
  }
}

TEST_CASE("a static layer clamps its inputs to the range, a dynamic one does not") {
  const auto layer = linear_of(Tensor::full({2, 4}, 0.5));
  const Tensor x = Tensor::full({1, 4}, 10);
  nn::QuantisedLinear fixed(*layer, kernels::ValueRange{.min = 0, .max = 2}), dynamic(*layer, std::nullopt);
  CHECK(run(fixed, x).data<float>()[0] == Approx(4));
  CHECK(run(dynamic, x).data<float>()[0] == Approx(20));
}

TEST_CASE("a quantised layer refuses gradients and inputs that do not fit") {
  nn::QuantisedLinear layer(*linear_of(uniform({3, 4}, -1, 1)), std::nullopt);
  CHECK_THROWS_WITH(layer(Variable(uniform({2, 4}, 0, 1), true)), Catch::Contains("no gradient"));
  CHECK_THROWS_WITH(layer(Variable(uniform({2, 5}, 0, 1))), Catch::Contains("does not fit"));
}

TEST_CASE("the linear layers of a model are replaced, others stay") {
  auto model = small_mlp();
  const Tensor x = uniform({8, 1, 6, 6}, -1, 1);
  const Tensor expected = run(*model, x);
  SECTION("dynamic") {
    CHECK(nn::quantise_dynamic(*model) == 3);
    CHECK(model->named_buffers().size() == 3 * 3);
  }
  SECTION("static") {
    CHECK(nn::quantise_static(*model, [&] { run(*model, x); }) == 3);
    CHECK(model->named_buffers().size() == 3 * 4);
  }
  CHECK(model->named_parameters().empty());
  CHECK(model->named_buffers()[0].first == "fc1.weight");
  CHECK(model->named_buffers()[0].second.dtype() == DType::int8);
  CHECK(relative_difference(expected, run(*model, x)) < 0.05);

  Generator generator(1, 0);
  auto resnet = nn::make_model("two_part_resnet", {.input = {1, 28, 28}}, generator);
  CHECK(nn::quantise_dynamic(*resnet) == 1);
  CHECK(resnet->parameter("part2.conv.weight").dtype() == DType::float32);
  CHECK(resnet->module("part2.fc").named_parameters().empty());
}

TEST_CASE("a quantised model's file is loaded into a model quantised alike, with the same bits") {
  const TempDir dir;
  const Tensor x = uniform({8, 1, 6, 6}, -1, 1);
  auto model = small_mlp();
  nn::quantise_static(*model, [&] { run(*model, x); });
  const Tensor expected = run(*model, x);
  nn::save_state(*model, dir / "q.safetensors");

  Generator generator(77, 0);
  auto other = nn::make_model("mlp", {.input = {1, 6, 6}, .outputs = 10, .hidden = {64, 32}}, generator);
  nn::quantise_static(*other, [] {});
  run(*other, x);  // sums of the weight that the file replaces
  nn::load_state(*other, dir / "q.safetensors");
  const Tensor loaded = run(*other, x);
  for (std::int64_t i = 0; i < expected.numel(); ++i) CHECK(loaded.data<float>()[i] == expected.data<float>()[i]);

  auto dynamic = small_mlp();
  nn::quantise_dynamic(*dynamic);
  CHECK_THROWS_WITH(nn::load_state(*dynamic, dir / "q.safetensors"), Catch::Contains("input_range"));
}
