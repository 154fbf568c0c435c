#include <cmath>

#include "common/error.h"
#include "worker/autograd/ops.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/nn/quantization/quantize.h"
#include "worker/nn/quantization/quantized_conv2d.h"
#include "worker/nn/quantization/quantized_linear.h"
#include "worker/nn/state.h"
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

// Returns the difference of two tensors, as a share of the largest magnitude of the first.
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
  Tensor own = layer->parameter("weight").value();  // a handle on the same elements
  own.copy_from(weight);
  return layer;
}

Tensor run(nn::Module& module, const Tensor& x) {
  const NoGradScope no_grad;
  return module(Variable(x)).value().contiguous();
}

// A convolution with any options, which nn::Conv2d does not have.
class Convolution : public nn::WeightedLayer {
 public:
  Convolution(const Tensor& weight, const Tensor& bias, ConvOptions options) : options_(options) {
    set_weight(weight.clone());
    if (bias.defined()) set_bias(bias.clone());
  }
  Variable apply(const Variable& input, const Variable& weight, const Variable& bias) const override {
    return conv2d(input, weight, bias, options_);
  }

 private:
  ConvOptions options_;
};

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
  nn::QuantizedLinear quantized(*linear_of(weight), std::nullopt);
  const Tensor y = run(quantized, x);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < outputs; ++j) {
      double expected = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        expected += static_cast<double>(x.data<float>()[i * depth + k]) * weight.data<float>()[j * depth + k];
      CHECK(y.data<float>()[i * outputs + j] == Approx(expected).epsilon(1e-6));
    }
  }
}

TEST_CASE("a quantized layer gives what the layer gives, but for the rounding") {
  const Shape shape = GENERATE(Shape{9, 50}, Shape{3, 4, 50});
  const bool bias = GENERATE(true, false);
  const auto layer = linear_of(uniform({20, 50}, -0.3, 0.1), bias);
  const Tensor x = uniform(shape, -1, 3);
  const Tensor expected = run(*layer, x);
  nn::QuantizedLinear dynamic(*layer, std::nullopt), fixed(*layer, kernels::ValueRange{.min = -1, .max = 3});
  CHECK(relative_difference(expected, run(dynamic, x)) < 0.02);
  CHECK(relative_difference(expected, run(fixed, x)) < 0.02);
  // Each output has a scale of its own: a row a thousand times smaller is as exact.
  Tensor weight = layer->parameter("weight").value();
  for (std::int64_t i = 50; i < weight.numel(); ++i) weight.data<float>()[i] *= 1e-3F;
  const auto columns = [&](const Tensor& y) { return y.reshape({-1, 20}).slice(1, 1, 19).contiguous(); };
  if (!bias) {
    nn::QuantizedLinear small(*layer, std::nullopt);
    CHECK(relative_difference(columns(run(*layer, x)), columns(run(small, x))) < 0.02);
  }
}

TEST_CASE("a static layer clamps its inputs to the range, a dynamic one does not") {
  const auto layer = linear_of(Tensor::full({2, 4}, 0.5));
  const Tensor x = Tensor::full({1, 4}, 10);
  nn::QuantizedLinear fixed(*layer, kernels::ValueRange{.min = 0, .max = 2}), dynamic(*layer, std::nullopt);
  CHECK(run(fixed, x).data<float>()[0] == Approx(4));
  CHECK(run(dynamic, x).data<float>()[0] == Approx(20));
}

TEST_CASE("a quantized layer refuses gradients and inputs that do not fit") {
  nn::QuantizedLinear layer(*linear_of(uniform({3, 4}, -1, 1)), std::nullopt);
  CHECK_THROWS_WITH(layer(Variable(uniform({2, 4}, 0, 1), true)), Catch::Contains("no gradient"));
  CHECK_THROWS_WITH(layer(Variable(uniform({2, 5}, 0, 1))), Catch::Contains("does not fit"));
}

struct ConvCase {
  Shape x, weight;
  ConvOptions options;
};

TEST_CASE("a quantized convolution is exact for integers, and gives what the layer gives but for the rounding") {
  const ConvCase c =
      GENERATE(ConvCase{{2, 1, 8, 9}, {10, 1, 5, 5}, {}}, ConvCase{{3, 10, 7, 7}, {20, 10, 3, 3}, {.padding = 1}},
               ConvCase{{2, 16, 9, 8}, {32, 16, 3, 3}, {.stride = 2, .padding = 1}},
               ConvCase{{2, 5, 9, 8}, {7, 5, 1, 1}, {.stride = 2}},
               ConvCase{{2, 5, 9, 8}, {7, 5, 1, 1}, {.stride = 3, .padding = 1}},
               ConvCase{{1, 3, 3, 3}, {3, 3, 1, 1}, {.stride = 2, .padding = 4}},
               ConvCase{{2, 3, 11, 10}, {4, 3, 3, 2}, {.stride = 2, .padding = 2, .dilation = 2}},
               ConvCase{{2, 4, 6, 6}, {6, 2, 3, 3}, {.padding = 1, .groups = 2}},
               ConvCase{{2, 6, 6, 6}, {6, 1, 3, 3}, {.padding = 1, .groups = 6}},
               ConvCase{{1, 40, 5, 5}, {24, 40, 3, 3}, {.stride = 3, .padding = 1}});
  CAPTURE(to_string(c.x), to_string(c.weight), c.options.stride, c.options.padding, c.options.dilation,
          c.options.groups);
  const Tensor bias = uniform({c.weight[0]}, -1, 1, 5);
  SECTION("integers") {
    const float low = GENERATE(0.0F, -40.0F);
    Tensor x = uniform(c.x, low, low + 127), weight = uniform(c.weight, -127, 127, 2);
    for (Tensor* each : {&x, &weight})
      for (std::int64_t i = 0; i < each->numel(); ++i) each->data<float>()[i] = std::round(each->data<float>()[i]);
    x.data<float>()[0] = low;
    x.data<float>()[1] = low + 127;
    const std::int64_t row = weight.numel() / weight.size(0);
    for (std::int64_t i = 0; i < weight.numel(); i += row) weight.data<float>()[i] = 127;  // the scale is 1
    const Convolution layer(weight, {}, c.options);
    nn::QuantizedConv2d quantized(layer, c.options, std::nullopt);
    // The loops of float64 are exact.
    const Tensor expected = conv2d(Variable(x.to(DType::float64)), Variable(weight.to(DType::float64)), {}, c.options)
                                .value()
                                .to(DType::float32);
    CHECK(relative_difference(expected, run(quantized, x)) < 1e-6);
  }
  SECTION("numbers") {
    Convolution layer(uniform(c.weight, -0.3, 0.2, 2), bias, c.options);
    const Tensor x = uniform(c.x, -1, 3);
    nn::QuantizedConv2d dynamic(layer, c.options, std::nullopt);
    nn::QuantizedConv2d fixed(layer, c.options, kernels::ValueRange{.min = -1, .max = 3});
    CHECK(relative_difference(run(layer, x), run(dynamic, x)) < 0.02);
    CHECK(relative_difference(run(layer, x), run(fixed, x)) < 0.02);
  }
}

TEST_CASE("a layer of a user's own stays as it is") {
  Convolution layer(uniform({4, 3, 3, 3}, -1, 1), {}, {});
  CHECK(nn::quantize_dynamic(layer) == 0);
  CHECK(nn::make_quantization_aware(layer) == 0);
}

TEST_CASE("a quantized convolution refuses images that do not fit") {
  const Convolution layer(uniform({4, 3, 3, 3}, -1, 1), {}, {});
  nn::QuantizedConv2d quantized(layer, {}, std::nullopt);
  CHECK_THROWS_WITH(quantized(Variable(uniform({2, 2, 8, 8}, 0, 1))), Catch::Contains("does not fit"));
  CHECK_THROWS_WITH(quantized(Variable(uniform({2, 3, 2, 8}, 0, 1))), Catch::Contains("larger than"));
}

TEST_CASE("products and convolutions are quantized wherever they are in a model, others stay") {
  struct Case {
    const char* name;
    Shape input;
    int layers;
    const char* part;
  };
  const auto c = GENERATE(Case{"cnn", {1, 28, 28}, 4, "conv1"}, Case{"cnn_bn", {1, 28, 28}, 4, "conv2"},
                          Case{"conv_net", {1, 28, 28}, 4, "conv1"}, Case{"sequential_cnn", {1, 28, 28}, 3, "0"},
                          Case{"two_part_resnet", {1, 28, 28}, 3, "part1.conv"},
                          Case{"resnet18", {3, 16, 16}, 21, "layer2.0.downsample.0"});
  const bool fixed = GENERATE(false, true);
  CAPTURE(c.name, fixed);
  Generator generator(1, 0);
  auto model = nn::make_model(c.name, {.input = c.input, .channels = 4}, generator);
  model->train(false);
  Shape shape = c.input;
  shape.insert(0, 8);
  const Tensor x = uniform(shape, -1, 1);
  const Tensor expected = run(*model, x);
  std::int64_t before = 0;
  for (const auto& [name, parameter] : model->named_parameters()) before += parameter.value().numel();
  CHECK((fixed ? nn::quantize_static(*model, [&] { run(*model, x); }) : nn::quantize_dynamic(*model)) == c.layers);
  CHECK(model->module(c.part).named_parameters().empty());
  CHECK(model->module(c.part).named_buffers()[0].second.dtype() == DType::int8);
  CHECK(relative_difference(expected, run(*model, x)) < 0.1);
  // Only norms are left, each with running statistics.
  for (const auto& [name, parameter] : model->named_parameters()) CHECK(parameter.shape().size() == 1);
  CHECK(nn::quantize_dynamic(*model) == 0);
}

TEST_CASE("gpt's products are quantized, the embeddings and the tied output layer stay") {
  Generator generator(1, 0);
  auto model = nn::make_model("gpt",
                              {.input = {8},
                               .input_dtype = DType::int64,
                               .outputs = 50,
                               .gpt = {.layers = 2, .heads = 2, .width = 32, .context = 8}},
                              generator);
  model->train(false);
  const Tensor tokens = Tensor::from<std::int64_t>({1, 7, 49, 3, 0, 22, 7, 8}, {1, 8});
  const Tensor expected = run(*model, tokens);
  const bool fixed = GENERATE(false, true);
  CHECK((fixed ? nn::quantize_static(*model, [&] { run(*model, tokens); }) : nn::quantize_dynamic(*model)) == 2 * 4);
  CHECK(relative_difference(expected, run(*model, tokens)) < 0.05);
  CHECK(model->parameter("wte.weight").dtype() == DType::float32);
  const auto buffers = model->module("h.1.mlp.c_fc").named_buffers();
  CHECK(buffers[0].second.shape() == Shape{128, 32});  // (out, in)
  CHECK(buffers[1].second.shape() == Shape{128});
}

TEST_CASE("a parameter that another module has too stays as it is when its layer is quantized") {
  class Tied : public nn::Module {
   public:
    explicit Tied(Generator& generator)
        : first_(register_module("first", std::make_unique<nn::Linear>(4, 4, generator))),
          weight_(register_parameter("weight", first_.weight())) {}

   private:
    Variable forward(const Variable& input) override { return linear(first_(input), weight_); }
    nn::Linear& first_;
    Variable weight_;
  };
  Generator generator(1, 0);
  Tied model(generator);
  const Tensor x = uniform({3, 4}, -1, 1);
  const Tensor expected = run(model, x);
  CHECK(nn::quantize_dynamic(model) == 1);
  CHECK(relative_difference(expected, run(model, x)) < 0.05);
}

TEST_CASE("a quantization-aware model computes what the quantized one computes, with the ranges that it has learnt") {
  const std::string name = GENERATE("mlp", "cnn", "resnet18");
  CAPTURE(name);
  Generator generator(1, 0);
  auto model = nn::make_model(name, {.input = {1, 28, 28}, .channels = 4}, generator);
  const std::size_t parameters = model->named_parameters().size(), buffers = model->named_buffers().size();
  const int layers = nn::make_quantization_aware(*model);
  CHECK(model->named_parameters().size() == parameters);
  CHECK(model->named_buffers().size() == buffers + static_cast<std::size_t>(layers));
  const Tensor x = uniform({8, 1, 28, 28}, -1, 2);
  for (int batch = 0; batch < 3; ++batch) (*model)(Variable(x));
  model->train(false);
  const Tensor expected = run(*model, x);
  CHECK(nn::quantize_static(*model, [] { FAIL("the ranges are known"); }) == layers);
  CHECK(relative_difference(expected, run(*model, x)) < 1e-4);
}

TEST_CASE("the learnt range is the first batch's, then follows slowly, and stays in evaluation") {
  auto model = small_mlp();
  nn::make_quantization_aware(*model);
  const auto range = [&] {
    const Tensor bounds = model->module("fc1").named_buffers().at(0).second;
    return std::pair(bounds.data<float>()[0], bounds.data<float>()[1]);
  };
  const auto pass = [&](float low, float high) {
    Tensor x = Tensor::full({2, 1, 6, 6}, low);
    x.data<float>()[3] = high;
    return (*model)(Variable(x));
  };
  pass(-1, 4);
  CHECK(range() == std::pair(-1.0F, 4.0F));
  pass(-2, 14);
  CHECK(range().first == Approx(-1.01));
  CHECK(range().second == Approx(4.1));
  model->train(false);
  pass(-100, 100);
  CHECK(range().second == Approx(4.1));
  model->train(true);
  model->set_recompute(nn::Recompute::all);
  const Variable out = pass(-1.01F, 14.1F);
  CHECK(range().second == Approx(4.2));
  sum(out).backward();  // computes the layers again
  CHECK(range().second == Approx(4.2));
  CHECK(model->parameter("fc1.weight").grad().defined());
}

TEST_CASE("the layers of an MLP are quantized, and have their buffers") {
  auto model = small_mlp();
  const Tensor x = uniform({8, 1, 6, 6}, -1, 1);
  const Tensor expected = run(*model, x);
  SECTION("dynamic") {
    CHECK(nn::quantize_dynamic(*model) == 3);
    CHECK(model->named_buffers().size() == 3 * 3);
  }
  SECTION("static") {
    CHECK(nn::quantize_static(*model, [&] { run(*model, x); }) == 3);
    CHECK(model->named_buffers().size() == 3 * 4);
  }
  CHECK(model->named_parameters().empty());
  CHECK(model->named_buffers()[0].first == "fc1.weight");
  CHECK(model->named_buffers()[0].second.dtype() == DType::int8);
  CHECK(relative_difference(expected, run(*model, x)) < 0.05);
}

TEST_CASE("a quantized model's file is loaded into a model quantized alike, with the same bits") {
  const TempDir dir;
  const Tensor x = uniform({8, 1, 6, 6}, -1, 1);
  auto model = small_mlp();
  nn::quantize_static(*model, [&] { run(*model, x); });
  const Tensor expected = run(*model, x);
  nn::save_state(*model, dir / "q.safetensors");

  Generator generator(77, 0);
  auto other = nn::make_model("mlp", {.input = {1, 6, 6}, .outputs = 10, .hidden = {64, 32}}, generator);
  nn::quantize_static(*other, [] {});
  run(*other, x);  // caches sums of the weight that the file replaces
  nn::load_state(*other, dir / "q.safetensors");
  const Tensor loaded = run(*other, x);
  for (std::int64_t i = 0; i < expected.numel(); ++i) CHECK(loaded.data<float>()[i] == expected.data<float>()[i]);

  auto dynamic = small_mlp();
  nn::quantize_dynamic(*dynamic);
  CHECK_THROWS_WITH(nn::load_state(*dynamic, dir / "q.safetensors"), Catch::Contains("input_range"));
}
