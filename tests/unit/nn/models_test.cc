#include "worker/nn/models.h"

#include <algorithm>
#include <cmath>

#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/nn/layers.h"
#include "worker/nn/random_scope.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

std::unique_ptr<nn::Module> make(std::string_view name, const nn::ModelOptions& options = {}) {
  Generator generator(1);
  return nn::make_model(name, options, generator);
}

std::int64_t parameters(const nn::Module& model) {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : model.named_parameters()) count += parameter.value().numel();
  return count;
}

std::vector<std::string> names(const nn::Module& model) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : model.named_parameters()) all.push_back(name);
  return all;
}

nn::ModelOptions small_gpt(double dropout = 0) {
  return {.input = {6},
          .input_dtype = DType::int64,
          .outputs = 11,
          .dropout = dropout,
          .gpt = {.layers = 2, .heads = 2, .width = 8, .context = 6}};
}

nn::ModelOptions small_transformer(double dropout = 0) {
  return {.input = {3, 5, 4}, .dropout = dropout, .gpt = {.layers = 2, .heads = 2, .width = 8}};
}

Variable tokens(std::int64_t batch, std::int64_t time, std::int64_t first = 0) {
  Tensor all = Tensor::empty({batch, time}, DType::int64);
  for (std::int64_t i = 0; i < all.numel(); ++i) all.data<std::int64_t>()[i] = (first + i * 7) % 11;
  return Variable(all);
}

double deviation_of(const nn::Module& model, const std::string& name) {
  const auto all = values(model.parameter(name).value());
  double square = 0;
  for (const double value : all) square += value * value / static_cast<double>(all.size());
  return std::sqrt(square);
}

}  // namespace

TEST_CASE("every image model takes the smallest image of its row, and other channels and outputs") {
  for (const std::string_view name : nn::model_names()) {
    const std::int64_t size = nn::smallest_image(name);
    if (size == 0) continue;
    INFO(name);
    const auto model = make(name, {.input = {3, size, size}, .outputs = 7, .channels = 4});
    model->train(false);
    CHECK((*model)(Variable(Tensor::zeros({2, 3, size, size}))).shape() == Shape{2, 7});
    CHECK_THROWS_WITH(make(name, {.input = {3, size, size - 1}}), Catch::Contains("the input has shape"));
    CHECK_THROWS_WITH(make(name, {.input_dtype = DType::int64}), Catch::Contains("is int64, not float32"));
  }
}

TEST_CASE("the image models have the layers of their description") {
  CHECK(parameters(*make("conv_net")) == 20 * 26 + 20 * 501 + 50 * 321 + 10 * 51);
  CHECK(names(*make("sequential_cnn")) ==
        std::vector<std::string>{"0.weight", "0.bias", "4.weight", "4.bias", "6.weight", "6.bias"});
  CHECK(make("sequential_cnn")->parameter("4.weight").shape() == Shape{50, 1440});
  CHECK(parameters(*make("cnn_bn")) == 21840 + 2 * (10 + 20));
  const auto parts = make("two_part_resnet");
  CHECK(parts->module("part1").parameter("conv.weight").shape() == Shape{64, 1, 7, 7});
  CHECK(parts->module("part2").parameter("fc.weight").shape() == Shape{10, 128});
  CHECK(parts->named_parameters().size() == 8);
}

TEST_CASE("ResNet-18 for ImageNet has torchvision's number of parameters") {
  const auto model = make("resnet18", {.input = {3, 224, 224}, .outputs = 1000, .stem = "imagenet"});
  CHECK(parameters(*model) == 11689512);
  CHECK(names(*model).front() == "conv1.weight");
  CHECK(names(*model).back() == "fc.bias");
  CHECK_THROWS_WITH(make("resnet18", {.stem = "tiny"}),
                    "model resnet18: there is no stem 'tiny'; there are: cifar, imagenet");
  CHECK_THROWS_WITH(make("resnet18", {.channels = 0}), "model resnet18: 0 channels are not possible");
}

TEST_CASE("ResNet-50 has torchvision's number of parameters") {
  const auto model = make("resnet50", {.input = {3, 224, 224}, .outputs = 1000, .stem = "imagenet"});
  CHECK(parameters(*model) == 25557032);
  CHECK(model->parameter("layer4.2.conv3.weight").shape() == Shape{2048, 512, 1, 1});
  CHECK_THROWS_WITH(make("resnet50", {.channels = 0}), "model resnet50: 0 channels are not possible");
}

TEST_CASE("the presets of GPT have the sizes of their table, and options take precedence") {
  const nn::GptOptions gpt2 = nn::with_preset({.preset = "gpt2"});
  CHECK(gpt2.layers == 12);
  CHECK(gpt2.heads == 12);
  CHECK(gpt2.width == 768);
  CHECK(gpt2.context == 1024);
  CHECK(gpt2.vocabulary == 50257);
  CHECK(nn::with_preset({.preset = "small", .context = 64}).context == 64);
  CHECK(nn::with_preset({.preset = "small", .context = 64}).width == 384);
  const auto nano = make("gpt", {.input = {128}, .input_dtype = DType::int64, .outputs = 65});
  // The sizes are 12 width^2 + 13 width a layer, embeddings, the last normalization.
  CHECK(parameters(*nano) == 4 * (12 * 128 * 128 + 13 * 128) + (65 + 128) * 128 + 2 * 128);
  CHECK(nano->parameter("wte.weight").shape() == Shape{65, 128});
}

TEST_CASE("a wrong GPT is one line") {
  nn::ModelOptions options = small_gpt();
  options.gpt.heads = 3;
  CHECK_THROWS_WITH(make("gpt", options), "model gpt: a width of 8 is no multiple of 3 heads");
  options = small_gpt();
  options.gpt.preset = "huge";
  CHECK_THROWS_WITH(make("gpt", options), "model gpt: there is no preset 'huge'; there are: nano, small, gpt2");
  options = small_gpt();
  options.input = {7};
  CHECK_THROWS_WITH(make("gpt", options), "model gpt: the input has shape [7], not (time) of at most 6 tokens");
  options = small_gpt();
  options.gpt.vocabulary = 10;
  CHECK_THROWS_WITH(make("gpt", options), "model gpt: a vocabulary of 10 is too small for 11 tokens");
  CHECK_THROWS_WITH(make("gpt"), "model gpt: the input is float32, not int64 tokens");
  CHECK_THROWS_WITH((*make("gpt", small_gpt()))(tokens(1, 7)), Catch::Contains("tokens of shape [1, 7]"));
}

TEST_CASE("GPT is drawn as GPT-2, residual projections smaller by the number of layers") {
  nn::ModelOptions options = small_gpt();
  options.gpt.width = 64;
  const auto model = make("gpt", options);
  CHECK(deviation_of(*model, "wpe.weight") == Approx(0.02).epsilon(0.1));
  CHECK(deviation_of(*model, "h.0.attn.c_attn.weight") == Approx(0.02).epsilon(0.1));
  CHECK(deviation_of(*model, "h.1.attn.c_proj.weight") == Approx(0.01).epsilon(0.1));
  CHECK(deviation_of(*model, "h.1.mlp.c_proj.weight") == Approx(0.01).epsilon(0.1));
  CHECK(deviation_of(*model, "h.0.mlp.c_fc.bias") == 0);
}

TEST_CASE("a token of GPT sees those before it alone") {
  const auto model = make("gpt", small_gpt());
  const Tensor before = (*model)(tokens(1, 6)).value();
  CHECK(before.shape() == Shape{1, 6, 11});
  Variable changed(tokens(1, 6).value().clone());
  Tensor(changed.value()).data<std::int64_t>()[4] = 10;
  const Tensor after = (*model)(changed).value();
  CHECK(difference(after.slice(1, 0, 4), before.slice(1, 0, 4)) == 0);
  CHECK(difference(after.slice(1, 4, 2), before.slice(1, 4, 2)) > 1e-4);
}

TEST_CASE("GPT's dropout follows the samples, and is off in evaluation") {
  const auto model = make("gpt", small_gpt(0.3)), plain = make("gpt", small_gpt());
  for (const auto& [name, parameter] : model->named_parameters())
    Tensor(plain->parameter(name).value()).copy_from(parameter.value());
  const auto run = [&](const std::vector<std::int64_t>& samples) {
    const nn::RandomScope scope({.seed = 7, .epoch = 1, .samples = samples});
    return (*model)(tokens(static_cast<std::int64_t>(samples.size()), 6)).value();
  };
  CHECK(difference(run({3}), run({3, 4}).slice(0, 0, 1)) < 1e-6);
  CHECK(difference(run({3}), run({5})) > 1e-3);
  model->train(false);
  CHECK(difference(run({3}), (*plain)(tokens(1, 6)).value()) < 1e-6);
}

TEST_CASE("attention with dropout that drops nothing is the operation without it") {
  // The probability is so small that no weight of this size is dropped: the other path through the same values.
  const auto model = make("gpt", small_gpt(1e-12)), plain = make("gpt", small_gpt());
  for (const auto& [name, parameter] : model->named_parameters())
    Tensor(plain->parameter(name).value()).copy_from(parameter.value());
  CHECK(difference((*model)(tokens(2, 6)).value(), (*plain)(tokens(2, 6)).value()) < 1e-6);
}

TEST_CASE("positions that attention with dropout masks are no anomaly, and what is not finite elsewhere is one") {
  Generator generator(1);
  nn::CausalSelfAttention layer({.width = 8, .heads = 2, .dropout = 0.3}, generator);
  const auto pass = [&] {
    const nn::RandomScope random({.seed = 1, .epoch = 1, .samples = {0, 1}});
    const Variable input(random_tensor({2, 5, 8}, 3), true);
    const Variable result = layer(input);
    sum(mul(result, result)).backward();
    return values(input.grad());
  };
  const auto silent = pass();
  const autograd::AnomalyScope anomaly;
  for (const DType precision : {DType::float32, DType::bfloat16, DType::float16}) {
    const autograd::AutocastScope autocast(precision);
    const auto gradient = pass();
    if (precision == DType::float32) CHECK(gradient == silent);
  }
  // Query and key are finite, their product is not.
  layer.parameter("c_attn.weight").set_value(Tensor::full({8, 24}, 1e25));
  CHECK_THROWS_WITH(pass(), Catch::Contains("matmul") && Catch::Contains("produced a NaN or an infinity: its result"));
}

TEST_CASE("a transformer has the parameters of nn.TransformerEncoder between its own") {
  nn::ModelOptions options = small_transformer();
  options.gpt.layers = 1;
  const auto model = make("transformer", options);
  const std::string layer = "encoder.layers.0.";
  CHECK(names(*model) ==
        std::vector<std::string>{"embed.weight", "embed.bias", "position.weight", layer + "self_attn.in_proj_weight",
                                 layer + "self_attn.in_proj_bias", layer + "self_attn.out_proj.weight",
                                 layer + "self_attn.out_proj.bias", layer + "linear1.weight", layer + "linear1.bias",
                                 layer + "linear2.weight", layer + "linear2.bias", layer + "norm1.weight",
                                 layer + "norm1.bias", layer + "norm2.weight", layer + "norm2.bias",
                                 "encoder.norm.weight", "encoder.norm.bias", "fc.weight", "fc.bias"});
  CHECK(model->parameter(layer + "linear1.weight").shape() == Shape{32, 8});  // 4 x width
  CHECK(deviation_of(*model, layer + "self_attn.in_proj_weight") == Approx(std::sqrt(6.0 / 32 / 3)).epsilon(0.1));
  CHECK(deviation_of(*model, layer + "self_attn.out_proj.bias") == 0);
  options.encoder.norm_first = false;
  CHECK(names(*make("transformer", options)).size() == 17);  // no normalization after the last layer
}

TEST_CASE("a transformer takes rows of images in their order, and each position sees all") {
  const auto model = make("transformer", small_transformer());
  Tensor image = random_tensor({2, 3, 5, 4}, 8);
  const Tensor before = (*model)(Variable(image)).value().clone();
  CHECK(before.shape() == Shape{2, 10});
  CHECK(model->parameter("embed.weight").shape() == Shape{8, 12});
  CHECK(model->parameter("position.weight").shape() == Shape{5, 8});
  for (const std::int64_t row : {0, 4}) {
    Tensor changed = image.clone();
    changed.data<float>()[row * 4] += 1;  // in the first sample
    const Tensor after = (*model)(Variable(changed)).value();
    CHECK(difference(after.slice(0, 0, 1), before.slice(0, 0, 1)) > 1e-4);
    CHECK(difference(after.slice(0, 1, 1), before.slice(0, 1, 1)) == 0);
  }
  Tensor swapped = image.clone();  // exchanges two rows of the first sample's first channel
  std::swap_ranges(swapped.data<float>(), swapped.data<float>() + 4, swapped.data<float>() + 4);
  CHECK(difference((*model)(Variable(swapped)).value(), before) > 1e-5);
}

TEST_CASE("a transformer's dropout drops, is off in evaluation, and passes on what it does not drop") {
  const Variable input(random_tensor({2, 3, 5, 4}, 8));
  const auto plain = make("transformer", small_transformer());
  const auto like_plain = [&](double dropout) {
    auto model = make("transformer", small_transformer(dropout));
    for (const auto& [name, parameter] : model->named_parameters())
      Tensor(plain->parameter(name).value()).copy_from(parameter.value());
    return model;
  };
  const auto almost = like_plain(1e-12);
  CHECK(difference((*almost)(input).value(), (*plain)(input).value()) < 1e-6);
  const auto much = like_plain(0.5);
  CHECK(difference((*much)(input).value(), (*plain)(input).value()) > 1e-3);
  much->train(false);
  CHECK(difference((*much)(input).value(), (*plain)(input).value()) < 1e-6);
}

TEST_CASE("a wrong transformer is one line") {
  nn::ModelOptions options = small_transformer();
  options.gpt.heads = 3;
  CHECK_THROWS_WITH(make("transformer", options),
                    "model transformer: 2 layers of width 8 with 3 heads are not possible");
  options = small_transformer();
  options.input = {7};
  CHECK_THROWS_WITH(make("transformer", options),
                    "model transformer: the input has shape [7], not (time, features) or (channels, height, width)");
  options = small_transformer();
  options.encoder.activation = "tanh";
  CHECK_THROWS_WITH(make("transformer", options), "model transformer: 0 features behind tanh are not possible");
}
