#include "worker/nn/layers.h"

#include <cmath>

#include "worker/nn/random_scope.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

std::vector<std::string> names(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : module.named_parameters())
    all.push_back(name + " " + to_string(parameter.shape()));
  return all;
}

Variable random_input(const Shape& shape) {
  return Variable(random_tensor(shape, 5));
}

}  // namespace

TEST_CASE("an embedding has the rows of its weight") {
  Generator generator(1);
  nn::Embedding layer(5, 3, generator);
  CHECK(names(layer) == std::vector<std::string>{"weight [5, 3]"});
  const Tensor rows = layer(Variable(Tensor::from(std::vector<std::int64_t>{4, 0, 4, 2}, {2, 2}))).value();
  CHECK(rows.shape() == Shape{2, 2, 3});
  const Tensor weight = layer.parameter("weight").value();
  for (std::int64_t i = 0; i < 3; ++i) CHECK(rows.data<float>()[i] == weight.data<float>()[4 * 3 + i]);
  CHECK_THROWS_WITH(layer(Variable(Tensor::zeros({2}))), Catch::Contains("not int64"));
}

TEST_CASE("normalizations begin with weight 1 and bias 0, and call their operation") {
  const Variable rows = random_input({4, 6}), image = random_input({2, 6, 3, 3});
  nn::LayerNorm layer(6), without(6, 1e-5, false);
  nn::RmsNorm rms(6);
  nn::GroupNorm group(3, 6);
  CHECK(names(layer) == std::vector<std::string>{"weight [6]", "bias [6]"});
  CHECK(names(without) == std::vector<std::string>{"weight [6]"});
  CHECK(names(rms) == std::vector<std::string>{"weight [6]"});
  CHECK(names(group) == std::vector<std::string>{"weight [6]", "bias [6]"});
  CHECK(difference(layer(rows).value(), layer_norm(rows).value()) < 1e-6);
  CHECK(difference(without(rows).value(), layer_norm(rows).value()) < 1e-6);
  CHECK(difference(rms(rows).value(), rms_norm(rows).value()) < 1e-6);
  CHECK(difference(group(image).value(), group_norm(image, 3).value()) < 1e-6);
}

TEST_CASE("pooling and activation layers call their operation") {
  const Variable image = random_input({2, 3, 6, 8}), rows = random_input({4, 6});
  nn::AvgPool2d average({.kernel = 2});
  nn::AdaptiveAvgPool2d whole, parts(3, 2);
  CHECK(same_bits(average(image).value(), avg_pool2d(image, {.kernel = 2}).value()));
  CHECK(whole(image).shape() == Shape{2, 3, 1, 1});
  CHECK(same_bits(parts(image).value(), adaptive_avg_pool2d(image, 3, 2).value()));
  nn::Tanh hyperbolic;
  nn::Sigmoid logistic;
  nn::LogSoftmax probabilities;
  nn::GELU exact, approximate(nn::GELU::Approximation::tanh);
  CHECK(same_bits(hyperbolic(rows).value(), tanh(rows).value()));
  CHECK(same_bits(logistic(rows).value(), sigmoid(rows).value()));
  CHECK(same_bits(probabilities(rows).value(), log_softmax(rows).value()));
  CHECK(same_bits(exact(rows).value(), gelu(rows).value()));
  CHECK(same_bits(approximate(rows).value(), gelu_tanh(rows).value()));
}

TEST_CASE("a residual block has a downsampling convolution only where the shape changes") {
  Generator generator(1);
  nn::BasicBlock same(8, 8, 1, generator), wider(8, 16, 2, generator);
  CHECK(names(same).size() == 6);
  CHECK(names(wider).size() == 9);
  CHECK(wider.parameter("downsample.0.weight").shape() == Shape{16, 8, 1, 1});
  const Variable image = random_input({2, 8, 5, 5});
  CHECK(same(image).shape() == image.shape());
  CHECK(wider(image).shape() == Shape{2, 16, 3, 3});
}

TEST_CASE("convolutions are drawn by fan-in, or by fan-out as He et al. have it") {
  Generator generator(1);
  nn::Conv2d layer(16, 64, 3, generator, {.bias = false, .weights = nn::ConvWeights::kaiming_normal});
  CHECK(names(layer) == std::vector<std::string>{"weight [64, 16, 3, 3]"});
  double square = 0;
  for (const double value : values(layer.parameter("weight").value())) square += value * value / (64 * 16 * 9);
  CHECK(square == Approx(2.0 / (64 * 9)).epsilon(0.05));
}

TEST_CASE("dropout of a part of each sample is that part of the whole sample's") {
  Generator generator(1);
  const auto whole = nn::make_dropout(0.5, generator), part = nn::make_dropout(0.5, generator);
  const nn::RandomScope random({.seed = 3, .epoch = 1, .samples = {8, 2}});
  const Tensor expected = (*whole)(Variable(Tensor::full({2, 12, 5}, 1))).value();
  for (int i = 0; i < 3; ++i) {
    part->set_sample_part(nn::equal_part({}, i, 3));
    const Tensor y = (*part)(Variable(Tensor::full({2, 4, 5}, 1))).value();
    CHECK(same_bits(y, expected.slice(1, 4 * i, 4).contiguous()));
  }
}

TEST_CASE("dropout of a part needs numbers that belong to samples") {
  Generator generator(1);
  const auto layer = nn::make_dropout(0.5, generator);
  layer->set_sample_part(nn::equal_part({}, 1, 2));
  CHECK_THROWS_WITH((*layer)(Variable(Tensor::full({2, 4}, 1))), "dropout of a part of a sample needs a RandomScope");
}

TEST_CASE("dropout with probability 0 is the identity in training") {
  Generator generator(1);
  const auto layer = nn::make_dropout(0, generator);
  const Variable rows = random_input({4, 6});
  CHECK((*layer)(rows).is(rows));
}
