#include "worker/nn/layers/mixture_of_experts.h"

#include <algorithm>

#include "common/error.h"
#include "worker/autograd/ops.h"
#include "worker/nn/loss_factor_scope.h"
#include "worker/nn/models.h"
#include "worker/optim/optimizer.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;
using nn::ExpertCounts;
using nn::MixtureOfExperts;
using nn::MixtureOfExpertsOptions;

namespace {

std::vector<std::int64_t> integers(const Tensor& tensor) {
  return {tensor.data<std::int64_t>(), tensor.data<std::int64_t>() + tensor.numel()};
}

MixtureOfExpertsOptions small() {
  return {.width = 5, .hidden = 7, .experts = 4, .load_balancing_loss = 0, .deviation = 0.5, .result_deviation = 0.5};
}

std::unique_ptr<MixtureOfExperts> make_layer(const MixtureOfExpertsOptions& options, DType dtype = DType::float64) {
  Generator generator(3);
  auto layer = std::make_unique<MixtureOfExperts>(options, generator);
  layer->to(dtype);
  return layer;
}

// Every expert computes every token, and a token's weights of experts that it did not choose are 0.
Variable dense_result(const MixtureOfExperts& layer, const Variable& tokens) {
  const auto& options = layer.options();
  const Variable probabilities = softmax(linear(tokens, layer.parameter("router.weight")));
  const auto routing = nn::route(probabilities.value(), options.per_token, 0);
  Tensor chosen = Tensor::zeros(probabilities.shape(), DType::float64);
  for (std::int64_t i = 0; i < routing.experts.numel(); ++i)
    chosen.data<double>()[i / options.per_token * options.experts + routing.experts.data<std::int64_t>()[i]] = 1;
  Variable weights = mul(probabilities, Variable(chosen));
  if (options.per_token > 1) weights = div(weights, sum(weights, {1}, true));
  Variable result;
  for (std::int64_t e = 0; e < options.experts; ++e) {
    const auto of = [&](const char* name) { return select(layer.parameter(name), 0, e); };
    const Variable hidden = gelu_tanh(addmm(of("c_fc.bias"), tokens, of("c_fc.weight")));
    const Variable part = mul(addmm(of("c_proj.bias"), hidden, of("c_proj.weight")), slice(weights, 1, e, 1));
    result = result.defined() ? add(result, part) : part;
  }
  return result;
}

// Returns the gradients of the parameters and the tokens.
std::vector<Tensor> gradients(nn::Module& layer, const Variable& tokens, const Variable& result) {
  layer.zero_grad();
  Variable(tokens).zero_grad();
  result.backward(random_tensor(result.shape(), 11, DType::float64));
  std::vector<Tensor> all{tokens.grad().clone()};
  for (const auto& [name, parameter] : layer.named_parameters()) all.push_back(parameter.grad().clone());
  return all;
}

double fullest_over_mean(const ExpertCounts& chosen) {
  double sum = 0;
  for (const auto count : chosen) sum += static_cast<double>(count);
  return static_cast<double>(*std::ranges::max_element(chosen)) * static_cast<double>(chosen.size()) / sum;
}

}  // namespace

TEST_CASE("tokens are routed to their most probable experts, in the order of experts and tokens") {
  const Tensor probabilities = Tensor::from(std::vector<float>{0.1F, 0.6F, 0.3F,    //
                                                               0.5F, 0.25F, 0.25F,  //
                                                               0.2F, 0.5F, 0.3F},
                                            {3, 3});
  const auto all = nn::route(probabilities, 2, 0);
  CHECK(integers(all.experts) == std::vector<std::int64_t>{1, 2, 0, 1, 1, 2});
  CHECK(all.chosen == ExpertCounts{1, 3, 2});
  CHECK(all.counts == all.chosen);
  CHECK(integers(all.tokens) == std::vector<std::int64_t>{1, 0, 1, 2, 0, 2});
  CHECK(integers(all.rows) == std::vector<std::int64_t>{1, 4, 0, 2, 3, 5});
  CHECK(all.dropped == 0);

  // The second choice of token 1 comes after the first one of token 2.
  const auto some = nn::route(probabilities, 2, 2);
  CHECK(some.chosen == ExpertCounts{1, 3, 2});
  CHECK(some.counts == ExpertCounts{1, 2, 2});
  CHECK(integers(some.tokens) == std::vector<std::int64_t>{1, 0, 2, 0, 2});
  CHECK(values(some.kept) == std::vector<double>{1, 1, 1, 0, 1, 1});
  CHECK(some.dropped == 1);
}

TEST_CASE("the capacity of an expert is its share times the factor, rounded up") {
  CHECK(nn::expert_capacity(1, 10, 2, 4) == 5);
  CHECK(nn::expert_capacity(1.25, 10, 1, 4) == 4);
  CHECK(nn::expert_capacity(0, 10, 2, 4) == 0);
}

TEST_CASE("a mixture of experts computes what all experts would, and its gradients are theirs") {
  for (const std::int64_t per_token : {1, 2, 4}) {
    INFO(per_token);
    auto options = small();
    options.per_token = per_token;
    const auto layer = make_layer(options);
    const Variable tokens(random_tensor({9, 5}, 5, DType::float64), true);
    const Variable dense = dense_result(*layer, tokens);
    const auto expected = gradients(*layer, tokens, dense);
    const Variable result = (*layer)(tokens);
    CHECK(difference(result.value(), dense.value()) < 1e-12);
    const auto own = gradients(*layer, tokens, result);
    for (std::size_t i = 0; i < own.size(); ++i) CHECK(difference(own[i], expected[i]) < 1e-12);
  }
}

TEST_CASE("the losses of a router add to its gradient, times the factor, and not to the result") {
  auto options = small();
  options.load_balancing_loss = 0.3;
  options.router_z_loss = 0.2;
  const auto layer = make_layer(options);
  const Variable tokens(random_tensor({9, 5}, 5, DType::float64));
  CHECK(difference((*layer)(tokens).value(), dense_result(*layer, tokens).value()) < 1e-12);
  const auto routing = nn::route(softmax(linear(tokens, layer->parameter("router.weight"))).value(), 2, 0);
  std::vector<double> shares;
  for (const auto count : routing.chosen) shares.push_back(static_cast<double>(count) / 18);
  // Each loss is written out here.
  const auto losses = [&](const std::vector<Variable>& in) {
    const Variable exponentials = exp(linear(tokens, in[0])), sums = sum(exponentials, {1}, true);
    const Variable balance = sum(mul(mean(div(exponentials, sums), {0}), Variable(Tensor::from(shares, {4}))));
    const Variable log_sums = log(sums);
    return add(mul(balance, 4 * 0.3), mul(mean(mul(log_sums, log_sums)), 0.2));
  };
  const Tensor router = layer->parameter("router.weight").value().clone();
  REQUIRE(grad_check(losses, {router.clone()}) < 1e-8);
  Variable weight(router, true);
  losses({weight}).backward();

  const auto pass_with = [&](double factor) {
    const nn::LossFactorScope scope(factor);
    return (*layer)(tokens);
  };
  const Variable result = pass_with(3);
  result.backward(Tensor::zeros(result.shape(), DType::float64));
  const Variable three(Tensor::full(router.shape(), 3, DType::float64));
  CHECK(difference(layer->parameter("router.weight").grad(), mul(Variable(weight.grad()), three).value()) < 1e-12);
  for (const double value : values(layer->parameter("c_fc.weight").grad())) CHECK(value == 0);

  layer->train(false);
  CHECK(difference((*layer)(tokens).value(), result.value()) < 1e-12);
}

TEST_CASE("choices beyond an expert's capacity add nothing, and are counted") {
  auto options = small();
  options.per_token = 1;
  options.capacity_factor = 0.5;  // with 8 tokens and 4 experts: one each
  const auto layer = make_layer(options);
  const Variable tokens(random_tensor({2, 4, 5}, 5, DType::float64));
  const auto dense = values(dense_result(*layer, reshape(tokens, {8, 5})).value());
  const auto result = values((*layer)(tokens).value());
  std::int64_t dropped = 0;
  for (std::size_t token = 0; token < 8; ++token) {
    const bool is_zero = std::all_of(&result[token * 5], &result[token * 5] + 5, [](double x) { return x == 0; });
    dropped += is_zero ? 1 : 0;
    for (std::size_t i = token * 5; i < token * 5 + 5 && !is_zero; ++i) CHECK(result[i] == Approx(dense[i]));
  }
  const auto load = layer->take_load();
  CHECK(dropped >= 4);
  CHECK(load.dropped == dropped);
  CHECK(load.chosen[0] + load.chosen[1] + load.chosen[2] + load.chosen[3] == 8);
  CHECK(layer->take_load().chosen.empty());
}

TEST_CASE("the load-balancing loss makes the experts of a skewed router equally busy") {
  auto options = small();
  options.load_balancing_loss = 1;
  const auto layer = make_layer(options, DType::float32);
  // Positive features, and a router that finds expert 0 the most probable one of them all.
  Tensor features = random_tensor({256, 5}, 5);
  for (float& x : std::span(features.data<float>(), 256 * 5)) x = std::abs(x);
  for (float& weight : std::span(Tensor(layer->parameter("router.weight").value()).data<float>(), 5)) weight = 2;
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.02}, layer->named_parameters());
  double first = 0, last = 0;
  for (int step = 0; step < 150; ++step) {
    layer->zero_grad();
    const Variable result = (*layer)(Variable(features));
    result.backward(Tensor::zeros(result.shape()));
    optimizer->step();
    last = fullest_over_mean(layer->take_load().chosen);
    if (step == 0) first = last;
  }
  CHECK(first > 1.9);
  CHECK(last < 1.3);
}

TEST_CASE("more experts a token than there are is refused") {
  auto options = small();
  options.per_token = 5;
  CHECK_THROWS_WITH(make_layer(options), Catch::Contains("5 experts a token, of 4"));
}

TEST_CASE("a GPT has experts in the last of so many blocks, and learns") {
  Generator generator(1);
  const auto model = nn::make_model("gpt",
                                    {.input = {6},
                                     .input_dtype = DType::int64,
                                     .outputs = 11,
                                     .gpt = {.layers = 4, .heads = 2, .width = 8, .context = 6},
                                     .experts = {.experts = 3, .every = 2}},
                                    generator);
  for (const char* block : {"h.0", "h.2"})
    CHECK(model->parameter(std::string(block) + ".mlp.c_fc.weight").shape() == Shape{8, 32});
  for (const char* block : {"h.1", "h.3"}) {
    CHECK(model->parameter(std::string(block) + ".mlp.c_fc.weight").shape() == Shape{3, 8, 32});
    CHECK(model->parameter(std::string(block) + ".mlp.c_proj.bias").shape() == Shape{3, 8});
    CHECK(model->parameter(std::string(block) + ".mlp.router.weight").shape() == Shape{3, 8});
  }
  std::vector<std::int64_t> tokens{1, 5, 3, 9, 0, 2}, next{5, 3, 9, 0, 2, 7};
  const Tensor inputs = Tensor::from(tokens, {1, 6}), targets = Tensor::from(next, {6});
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, model->named_parameters());
  double loss = 0;
  for (int step = 0; step < 60; ++step) {
    model->zero_grad();
    const Variable result = cross_entropy(reshape((*model)(Variable(inputs)), {6, 11}), targets);
    result.backward();
    optimizer->step();
    loss = result.value().item();
  }
  CHECK(loss < 0.1);
}

TEST_CASE("experts compute in 16 bits under autocast, and routes stay those of float32") {
  auto options = small();
  options.width = 32;
  options.hidden = 64;
  options.load_balancing_loss = 0.01;
  const auto layer = make_layer(options, DType::float32);
  const Variable tokens(random_tensor({100, 32}, 5), true);
  const Tensor precise = (*layer)(tokens).value();
  const auto load = layer->take_load();
  const autograd::AutocastScope autocast(DType::bfloat16);
  const Variable result = (*layer)(tokens);
  CHECK(layer->take_load().chosen == load.chosen);
  CHECK(difference(result.value(), precise) < 0.03);
  result.backward(Tensor::full(result.shape(), 1, result.dtype()));
  CHECK(layer->parameter("c_fc.weight").grad().dtype() == DType::float32);
}
