#include "worker/parallel/forms/pipeline/stage.h"

#include <chrono>

#include "worker/nn/layers.h"
#include "tests/unit/parallel/forms/pipeline/pipeline_model.h"

using namespace ddprun;
using namespace ddprun::pipeline;
using namespace ddprun::testing;

namespace {

std::vector<std::string> names(const std::vector<nn::Module::Piece>& pieces) {
  std::vector<std::string> all;
  for (const auto& piece : pieces) all.push_back(piece.name);
  return all;
}

std::vector<std::string> names(const std::vector<std::pair<std::string, Variable>>& parameters) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : parameters) all.push_back(name);
  return all;
}

}  // namespace

TEST_CASE("a model in pieces computes what it computes whole, dropout included") {
  for (const TestModel& which : {TestModel{"mlp", 0.5}, TestModel{"gpt", 0.5}, TestModel{"cnn"}}) {
    const auto model = make(which);
    const auto scope = keys_of(0, 0);
    const Variable expected = (*model)(Variable(input_of(which, 0, 0)));
    Variable value(input_of(which, 0, 0));
    for (const auto& piece : model->pieces()) value = piece.run(value);
    CHECK(test::same_bits(value.value(), expected.value()));
  }
  CHECK(names(make({"gpt"})->pieces()) ==
        std::vector<std::string>{"wte", "h.0", "h.1", "h.2", "h.3", "h.4", "h.5", "ln_f", "lm_head"});
  Generator generator(1);
  const auto resnet = nn::make_model("resnet18", {.input = {3, 32, 32}, .channels = 8}, generator);
  CHECK(names(resnet->pieces()) == std::vector<std::string>{"conv1", "bn1", "relu", "layer1.0", "layer1.1", "layer2.0",
                                                            "layer2.1", "layer3.0", "layer3.1", "layer4.0", "layer4.1",
                                                            "avgpool", "flatten", "fc"});
  nn::Linear linear(2, 2, generator);
  CHECK(linear.pieces().size() == 1);
}

TEST_CASE("a stage has the parameters of its pieces, and a tied one is in both of its stages") {
  const auto model = make({"gpt"});
  const auto stages = make_stages(*model, cuts_at(*model, {"h.1", "lm_head"}, 3));
  REQUIRE(stages.size() == 3);
  CHECK(names(stages[0].parameters).front() == "wte.weight");
  CHECK(names(stages[0].parameters).back() == "h.0.mlp.c_proj.bias");
  CHECK(names(stages[1].parameters).front() == "h.1.ln_1.weight");
  CHECK(names(stages[1].parameters).back() == "ln_f.bias");
  CHECK(names(stages[2].parameters) == std::vector<std::string>{"wte.weight"});
  Generator generator(1);
  const auto resnet = nn::make_model("resnet18", {.input = {3, 32, 32}, .channels = 8}, generator);
  const auto halves = make_stages(*resnet, cuts_at(*resnet, {"layer2.0"}, 2));
  CHECK(halves[0].buffers.size() + halves[1].buffers.size() == resnet->named_buffers().size());
  CHECK(halves[0].buffers.front().first == "bn1.running_mean");
}

TEST_CASE("cuts that the model does not have are refused") {
  const auto model = make({"gpt"});
  CHECK_THROWS_WITH(cuts_at(*model, {"h"}, 2), Catch::Contains("h is not among the pieces") && Catch::Contains("h.5"));
  CHECK_THROWS_WITH(cuts_at(*model, {"h.2", "h.1"}, 3), Catch::Contains("h.1 is not"));
  CHECK_THROWS_WITH(cuts_at(*model, {"wte"}, 2), Catch::Contains("after the first"));
  CHECK_THROWS_WITH(cuts_at(*model, {"h.2"}, 3), Catch::Contains("1 pieces are named for 3 stages"));
  CHECK_THROWS_WITH(measured_cuts(measured_layers(*model, input_of({"gpt"}, 0, 0)), 10),
                    Catch::Contains("9 pieces with parameters for 10"));
  struct Stray : nn::Sequential {
    Stray() { register_parameter("stray", test::random_tensor({2}, 1)); }
  } stray;
  Generator generator(1);
  stray.add(std::make_unique<nn::Linear>(2, 2, generator));
  CHECK_THROWS_WITH(make_stages(stray, {}), Catch::Contains("stray belongs to none"));
}

TEST_CASE("measured cuts weigh the time of pieces, and each stage begins with one that learns") {
  struct Slow : nn::Module {
    Slow() { register_parameter("weight", test::random_tensor({1}, 1)); }
    Variable forward(const Variable& input) override {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      while (std::chrono::steady_clock::now() < end) {
      }
      return input;
    }
  };
  Generator generator(1);
  nn::Sequential model;
  model.add(std::make_unique<nn::Flatten>());
  for (int i = 0; i < 4; ++i) model.add(std::make_unique<nn::Linear>(2, 2, generator));
  model.add(std::make_unique<Slow>()).add(std::make_unique<nn::Flatten>()).add(std::make_unique<Slow>());
  const auto layers = measured_layers(model, test::random_tensor({2, 2}, 1));
  CHECK(measured_cuts(layers, 2) == std::vector<std::size_t>{7});
  CHECK(measured_cuts(layers, 6) == std::vector<std::size_t>{2, 3, 4, 5, 7});
  CHECK(layer_cuts(layers, {2, 7}) == std::vector<std::size_t>{1, 5});
  CHECK(piece_cuts(layers, {1, 5}) == std::vector<std::size_t>{2, 7});
  CHECK_THROWS_WITH(layer_cuts(layers, {6}), Catch::Contains("layers that learn: 0, 2, 3, 4, 5, 7"));
  CHECK(model.training());
}
