#include "worker/nn/module.h"

#include <cmath>
#include <cstring>

#include "common/error.h"
#include "worker/autograd/ops.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/nn/name_pattern.h"
#include "worker/nn/random_scope.h"
#include "worker/nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

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

TEST_CASE("a module may have several inputs and outputs") {
  struct SumAndProduct : nn::Module {
    SumAndProduct() { register_parameter("scale", Tensor::full({1}, 3)); }
    std::vector<Variable> forward_all(const std::vector<Variable>& in) override {
      return {add(in[0], in[1]), mul(mul(in[0], in[1]), parameter("scale"))};
    }
  };
  struct Outer : nn::Module {
    Outer() { inner = &register_module("inner", std::make_unique<SumAndProduct>()); }
    Variable forward(const Variable& input) override { return (*inner)(input); }
    SumAndProduct* inner;
  };
  const Variable x(Tensor::full({1}, 5), true), y(Tensor::full({1}, 7), true);
  SumAndProduct module;
  const auto outputs = module(std::vector{x, y});
  REQUIRE(outputs.size() == 2);
  CHECK(outputs[0].value().item() == 12);
  CHECK(outputs[1].value().item() == 105);
  backward({outputs[0], outputs[1]});
  CHECK(x.grad().item() == 22);
  CHECK(y.grad().item() == 16);
  CHECK(module.parameter("scale").grad().item() == 35);

  Outer outer;
  CHECK_THROWS_WITH(outer(x), "module inner takes a list of inputs");
  CHECK_THROWS_WITH(outer(std::vector{x, y}), "the model takes one input, not a list of 2");
  CHECK_THROWS_WITH(outer(std::vector{x}), "module inner takes a list of inputs");
}

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
  CHECK_THROWS_WITH(nn::make_model("cn", {}, generator),
                    "there is no model 'cn'; there are: cnn, cnn_bn, conv_net, sequential_cnn, two_part_resnet, "
                    "resnet18, resnet50, mlp, linear, linear_pair, transformer, gpt");
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

TEST_CASE("dropout belongs to seed, epoch, sample and layer, not to the batch") {
  Generator generator(1);
  const auto model = nn::make_model("mlp", {.input = {4}, .hidden = {64, 64}, .dropout = 0.5}, generator);
  const auto run = [&](std::uint64_t seed, std::int64_t epoch, const std::vector<std::int64_t>& samples) {
    const nn::RandomScope scope({.seed = seed, .epoch = epoch, .samples = samples});
    return (*model)(Variable(Tensor::full({static_cast<std::int64_t>(samples.size()), 4}, 1))).value();
  };
  const auto row = [](const Tensor& output, std::int64_t at) {
    const Tensor one = output.select(0, at);
    return std::vector<float>(one.data<float>(), one.data<float>() + one.numel());
  };
  const Tensor batch = run(7, 2, {10, 11, 12});
  const auto alone = row(run(7, 2, {11}), 0), together = row(batch, 1);
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(alone[i] == Approx(together[i]).margin(1e-6));  // sums round
  CHECK(row(batch, 0) != row(batch, 1));  // the inputs are equal
  CHECK(row(batch, 1) != row(run(7, 3, {11}), 0));
  CHECK(row(batch, 1) != row(run(8, 2, {11}), 0));
  // Two layers drop different units.
  nn::Sequential layers;
  layers.add("a", std::make_unique<nn::Dropout>(0.5, Generator(1)))
      .add("b", std::make_unique<nn::Dropout>(0.5, Generator(1)));
  const nn::RandomScope scope({.seed = 1, .epoch = 0, .samples = {3}});
  const Tensor both = layers(Variable(Tensor::full({1, 1000}, 1))).value();
  const auto kept = std::count(both.data<float>(), both.data<float>() + 1000, 4.0F);
  CHECK(kept > 150);
  CHECK(kept < 350);
  const nn::RandomScope two({.seed = 1, .epoch = 0, .samples = {3, 4}});
  CHECK_THROWS_WITH(layers(Variable(Tensor::zeros({3, 4}))), "dropout: 3 rows for a batch of 2 samples");
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

namespace {

// Two layers that share one weight.
struct Tied : nn::Module {
  explicit Tied(Generator& generator)
      : first(register_module("first", std::make_unique<nn::Linear>(3, 3, generator, false))),
        weight(register_parameter("weight", first.parameter("weight"))) {}
  Variable forward(const Variable& input) override { return linear(first(input), weight); }
  nn::Linear& first;
  Variable weight;
};

}  // namespace

TEST_CASE("a tied weight is one parameter, with the sum of its gradients") {
  Generator generator(1);
  Tied model(generator);
  REQUIRE(model.named_parameters().size() == 1);
  CHECK(model.parameter("first.weight").is(model.parameter("weight")));
  sum(model(Variable(Tensor::full({1, 3}, 1)))).backward();
  CHECK(model.weight.grad().defined());
  CHECK(model.first.parameter("weight").grad().raw() == model.weight.grad().raw());
  model.to(DType::float64);
  CHECK(model.first.parameter("weight").dtype() == DType::float64);
  CHECK(model.weight.is(model.first.parameter("weight")));
}

TEST_CASE("parameters and modules are found by their paths, and frozen there") {
  Generator generator(1);
  const auto model = nn::make_model("cnn", {}, generator);
  CHECK(model->parameter("fc1.bias").shape() == Shape{50});
  model->module("conv1").set_requires_grad(false);
  sum((*model)(Variable(Tensor::full({1, 1, 28, 28}, 1)))).backward();
  CHECK_FALSE(model->parameter("conv1.weight").grad().defined());
  CHECK(model->parameter("conv2.weight").grad().defined());
  CHECK_THROWS_WITH(model->parameter("fc3.bias"), "the model has no parameter fc3.bias");
  CHECK_THROWS_WITH(model->module("conv1.x"), Catch::Contains("no module x"));
}

TEST_CASE("a module moves to another device and type, and computes there") {
  Generator generator(1);
  const auto model = nn::make_model("cnn", {}, generator);
  const Variable image(Tensor::full({1, 1, 28, 28}, 0.5));
  const Tensor before = (*model)(image).value();
  const Device second = parse_device("cpu:1");
  model->to(second);
  CHECK(model->parameter("fc1.weight").device() == second);
  const Tensor there = (*model)(Variable(image.value().to(second))).value();
  CHECK(std::memcmp(there.raw(), before.raw(), before.bytes()) == 0);
  CHECK_THROWS_WITH((*model)(image), Catch::Contains("conv2d in module conv1") && Catch::Contains("cpu:1"));
  model->to(Device{});
  model->to(DType::bfloat16);
  const Tensor narrow = (*model)(Variable(image.value().to(DType::bfloat16))).value().to(DType::float32);
  for (std::int64_t i = 0; i < 10; ++i) CHECK(narrow.data<float>()[i] == Approx(before.data<float>()[i]).margin(0.02));
}

TEST_CASE("a pattern means parameters by path or by the module above them") {
  CHECK(nn::matches("fc1", "fc1.weight"));
  CHECK(nn::matches("fc1.weight", "fc1.weight"));
  CHECK(nn::matches("layer*", "layer4.1.conv2.weight"));
  CHECK(nn::matches("h.[01]", "h.1.attn.c_attn.bias"));
  CHECK(nn::matches("*.bias", "h.1.attn.c_attn.bias"));
  CHECK_FALSE(nn::matches("fc1", "fc10.weight"));
  CHECK_FALSE(nn::matches("h.1", "h.10.attn.c_attn.bias"));
  CHECK_FALSE(nn::matches("weight", "fc1.weight"));
  CHECK(nn::matches_any({"fc3", "fc1"}, "fc1.bias"));
  CHECK_FALSE(nn::matches_any({}, "fc1.bias"));
}

TEST_CASE("a state is saved and loaded, strictly or by prefix") {
  const testing::TempDir folder;
  const auto file = folder.path() / "state.safetensors";
  Generator generator(1), other(2);
  nn::Sequential whole;
  whole.add("body", nn::make_model("linear", {.input = {4}, .outputs = 2}, generator));
  whole.add("norm", std::make_unique<nn::BatchNorm>(2));
  nn::save_state(whole, file);

  const auto body = nn::make_model("linear", {.input = {4}, .outputs = 2}, other);
  CHECK_THROWS_WITH(nn::load_state(*body, file), Catch::Contains("missing fc.weight, fc.bias") &&
                                                     Catch::Contains("unexpected") &&
                                                     Catch::Contains("norm.running_var"));
  const auto report = nn::load_state(*body, file, {.prefix = "body."});
  CHECK(report.loaded == std::vector<std::string>{"fc.weight", "fc.bias"});
  CHECK(report.missing.empty());
  const Tensor loaded = body->parameter("fc.weight").value(), saved = whole.parameter("body.fc.weight").value();
  CHECK(std::memcmp(loaded.raw(), saved.raw(), saved.bytes()) == 0);

  // fc.bias of the module is not changed, and that of the file is not unexpected.
  const auto part = nn::load_state(*body, file, {.prefix = "body.", .excluded = {"*.bias"}});
  CHECK(part.loaded == std::vector<std::string>{"fc.weight"});
  CHECK(part.missing.empty());
  CHECK(part.unexpected.empty());

  const auto loose = nn::load_state(*body, file, {.strict = false});
  CHECK(loose.loaded.empty());
  CHECK(loose.missing.size() == 2);
  const auto wider = nn::make_model("linear", {.input = {5}, .outputs = 2}, other);
  CHECK_THROWS_WITH(nn::load_state(*wider, file, {.prefix = "body."}),
                    Catch::Contains("body.fc.weight has shape [2, 4], the model needs [2, 5]"));
}

namespace {

// Adds to a log, and doubles the module's inputs and results.
class Doubling final : public nn::CallHook {
 public:
  explicit Doubling(std::string& log) : log_(log) {}
  std::vector<Variable> before(std::vector<Variable> inputs) override {
    log_ += "before ";
    return {mul(inputs[0], 2.0)};
  }
  std::vector<Variable> after(std::vector<Variable> results) override {
    log_ += "after ";
    return {mul(results[0], 2.0)};
  }

 private:
  std::string& log_;
};

}  // namespace

TEST_CASE("a call hook sees the calls of its module, also those that compute it again") {
  for (const auto recompute : {nn::Recompute::none, nn::Recompute::all}) {
    nn::Sequential model;
    Generator generator(1);
    model.add("flatten", std::make_unique<nn::Flatten>());
    model.add("fc", std::make_unique<nn::Linear>(2, 2, generator));
    model.set_recompute(recompute);
    const Variable input(Tensor::full({1, 2}, 1));
    const double plain = sum(model(mul(input, 2.0))).value().item();
    std::string log;
    model.module("fc").set_call_hook(std::make_unique<Doubling>(log));
    const Variable hooked = sum(model(input));
    CHECK(hooked.value().item() == Approx(2 * plain));
    CHECK(log == "before after ");
    hooked.backward();
    CHECK(log == "before after ");  // the hooks are around checkpoint(), not within
    model.module("fc").set_call_hook(nullptr);
    CHECK(sum(model(mul(input, 2.0))).value().item() == plain);
  }
}

TEST_CASE("users of parameters are blocks, and modules outside of blocks with parameters of their own") {
  Generator generator(1);
  const auto paths = [](nn::Module& module) {
    std::vector<std::string> all;
    for (const auto& [path, user] : module.parameter_users()) all.push_back(path);
    return all;
  };
  const auto mlp = nn::make_model("mlp", {.input = {3}, .hidden = {4}}, generator);
  CHECK(paths(*mlp) == std::vector<std::string>{"fc1", "fc2"});
  const auto resnet = nn::make_model("resnet18", {.input = {3, 8, 8}, .channels = 4}, generator);
  const auto users = paths(*resnet);
  CHECK(std::count_if(users.begin(), users.end(), [](const auto& path) { return path.starts_with("layer"); }) == 8);
  Named alone("weight", "bias");
  CHECK(paths(alone) == std::vector<std::string>{""});
}
