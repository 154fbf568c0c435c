#include "ddprun/worker/nn/module.h"

#include <cmath>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/nn/layers.h"
#include "ddprun/worker/nn/models.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

std::vector<std::string> names(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : module.named_parameters())
    all.push_back(name + " " + to_string(parameter.shape()));
  return all;
}

struct Named : nn::Module {
  explicit Named(const char* first, const char* second) {
    register_parameter(first, Tensor::zeros({1}));
    register_parameter(second, Tensor::zeros({1}));
  }
  Variable forward(const Variable& input) override { return input; }
};

}  // namespace

TEST_CASE("the CNN has the parameters of its description, in order") {
  Generator generator(1);
  const auto model = nn::make_model("cnn", {}, generator);
  CHECK(names(*model) == std::vector<std::string>{"conv1.weight [10, 1, 5, 5]", "conv1.bias [10]",
                                                  "conv2.weight [20, 10, 5, 5]", "conv2.bias [20]",
                                                  "fc1.weight [50, 320]", "fc1.bias [50]", "fc2.weight [10, 50]",
                                                  "fc2.bias [10]"});
  std::int64_t count = 0;
  for (const auto& [name, parameter] : model->named_parameters()) count += parameter.value().numel();
  CHECK(count == 21840);
  CHECK((*model)(Variable(Tensor::zeros({3, 1, 28, 28}))).shape() == Shape{3, 10});
}

TEST_CASE("models take the input and the sizes they are told") {
  Generator generator(1);
  const auto cnn = nn::make_model("cnn", {.input = {3, 32, 32}, .outputs = 7}, generator);
  CHECK((*cnn)(Variable(Tensor::zeros({2, 3, 32, 32}))).shape() == Shape{2, 7});
  const auto mlp = nn::make_model("mlp", {.input = {5}, .outputs = 2, .hidden = {4, 3}}, generator);
  CHECK(names(*mlp) == std::vector<std::string>{"fc1.weight [4, 5]", "fc1.bias [4]", "fc2.weight [3, 4]",
                                                "fc2.bias [3]", "fc3.weight [2, 3]", "fc3.bias [2]"});
  const auto linear = nn::make_model("linear", {.input = {2, 3}, .outputs = 1}, generator);
  CHECK((*linear)(Variable(Tensor::zeros({4, 2, 3}))).shape() == Shape{4, 1});
}

TEST_CASE("a wrong model is one line") {
  Generator generator(1);
  CHECK_THROWS_WITH(nn::make_model("cn", {}, generator), "there is no model 'cn'; there are: cnn, mlp, linear");
  CHECK_THROWS_WITH(nn::make_model("cnn", {.input = {784}}, generator), Catch::Contains("[784]"));
  CHECK_THROWS_WITH(nn::make_model("mlp", {.hidden = {0}}, generator), Catch::Contains("0 units"));
}

TEST_CASE("initial values are uniform within one over the root of the fan-in, and follow the seed") {
  Generator generator(1), same(1), other(2);
  nn::Linear layer(100, 50, generator), twin(100, 50, same), stranger(100, 50, other);
  const Tensor weight = layer.named_parameters()[0].second.value();
  double largest = 0, square = 0;
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    const double value = static_cast<double>(weight.data<float>()[i]);
    largest = std::max(largest, std::abs(value));
    square += value * value / static_cast<double>(weight.numel());
  }
  CHECK(largest <= 0.1);
  CHECK(largest > 0.099);
  CHECK(square == Approx(0.01 / 3).epsilon(0.05));
  const auto first = [](const nn::Module& module) {
    return module.named_parameters()[0].second.value().data<float>()[0];
  };
  CHECK(first(layer) == first(twin));
  CHECK(first(layer) != first(stranger));
}

TEST_CASE("training and evaluation reach every child, dropout is the identity in evaluation") {
  Generator generator(1);
  nn::Sequential model;
  auto inner = std::make_unique<nn::Sequential>();
  inner->add(std::make_unique<nn::Dropout>(0.5, Generator(4)));
  model.add("inner", std::move(inner));
  const Variable input(Tensor::full({1000}, 1));
  const auto zeros = [&] {
    const Tensor output = model(input).value();
    return std::count(output.data<float>(), output.data<float>() + 1000, 0.0F);
  };
  CHECK(zeros() > 400);
  model.train(false);
  CHECK_FALSE(model.training());
  CHECK(zeros() == 0);
  model.train();
  CHECK(zeros() > 400);
}

TEST_CASE("a dropout's generator has a name, and its state replays the mask") {
  Generator generator(1);
  const auto model = nn::make_model("mlp", {.input = {4}, .hidden = {64}, .dropout = 0.5}, generator);
  const auto generators = model->named_generators();
  REQUIRE(generators.size() == 1);
  CHECK(generators[0].first == "dropout1.generator");
  const auto saved = generators[0].second->state();
  const Variable input(Tensor::full({1, 4}, 1));
  const double first = sum((*model)(input)).value().item(), second = sum((*model)(input)).value().item();
  CHECK(first != second);
  *generators[0].second = Generator(saved);
  CHECK(sum((*model)(input)).value().item() == first);
}

TEST_CASE("the handles of parameters share memory with the module") {
  Generator generator(1);
  nn::Linear layer(2, 1, generator);
  for (auto& [name, parameter] : layer.named_parameters()) {
    Tensor value = parameter.value();
    value.fill(2);
  }
  CHECK(layer(Variable(Tensor::full({1, 2}, 1))).value().item() == 6);
}

TEST_CASE("zero_grad reaches every parameter") {
  Generator generator(1);
  const auto model = nn::make_model("linear", {.input = {2}, .outputs = 1}, generator);
  sum((*model)(Variable(Tensor::full({1, 2}, 1)))).backward();
  CHECK(model->named_parameters()[0].second.grad().defined());
  model->zero_grad();
  CHECK_FALSE(model->named_parameters()[0].second.grad().defined());
}

TEST_CASE("names of parts are checked") {
  CHECK_THROWS_WITH(Named("a", "a"), Catch::Contains("two parts named 'a'"));
  CHECK_THROWS_WITH(Named("a", "b.c"), Catch::Contains("'b.c'"));
}
