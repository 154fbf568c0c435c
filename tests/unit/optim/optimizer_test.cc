#include "worker/optim/optimizer.h"

#include <cstring>

#include "common/error.h"
#include "worker/autograd/ops.h"
#include "worker/optim/clip.h"
#include "worker/tensor/random.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

struct Problem {
  Variable parameter{Tensor::from<float>({1, -2, 0.5}, {3}), true};
  optim::NamedParameters named() { return {{"p", parameter}}; }
  void step(optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    sum(mul(parameter, parameter)).backward();
    optimizer.step();
  }
};

std::vector<float> values(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
}

}  // namespace

TEST_CASE("a step is left out while the flag that is set is not 0, by the optimizers that can") {
  for (const std::string name : {"sgd", "adam", "adamw"}) {
    CAPTURE(name);
    Problem problem;
    const auto optimizer = optim::make_optimizer(name, {.lr = 0.05, .momentum = 0.9}, problem.named());
    Tensor flag = Tensor::full({1}, 1);
    optimizer->skip_if({{.skip = flag}});
    problem.step(*optimizer);
    CHECK(values(problem.parameter.value()) == std::vector<float>{1, -2, 0.5});
    for (const auto& [of, tensor] : optimizer->state()) CHECK(values(tensor) == std::vector<float>{0, 0, 0});
    flag.fill(0);
    problem.step(*optimizer);
    CHECK(values(problem.parameter.value()) != std::vector<float>{1, -2, 0.5});
  }
  Problem problem;
  const std::vector<optim::StepFlags> flags{{.skip = Tensor::full({1}, 0)}};
  CHECK_THROWS_AS(optim::make_optimizer("lamb", {}, problem.named())->skip_if(flags), Error);
}

TEST_CASE("writing the saved state into a new optimizer goes on with the same bits") {
  const optim::OptimOptions plain{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};
  optim::OptimOptions nesterov = plain, dampening = plain, centered = plain;
  centered.centered = true;
  nesterov.nesterov = true;
  dampening.dampening = 0.3;
  const std::vector<std::pair<const char*, optim::OptimOptions>> variants = {
      {"adam", plain},       {"adamw", plain},   {"sgd", plain},  {"sgd", nesterov}, {"sgd", dampening},
      {"rmsprop", centered}, {"adagrad", plain}, {"lamb", plain}, {"lars", plain},   {"muon", plain}};
  for (const auto& [name, options] : variants) {
    Problem original;
    const auto optimizer = optim::make_optimizer(name, options, original.named());
    for (int i = 0; i < 3; ++i) original.step(*optimizer);

    Problem restored;
    Tensor value = restored.parameter.value();
    value.copy_from(original.parameter.value());
    const auto fresh = optim::make_optimizer(name, options, restored.named());
    REQUIRE(fresh->state().size() == optimizer->state().size());
    for (std::size_t i = 0; i < fresh->state().size(); ++i) {
      CHECK(fresh->state()[i].first == optimizer->state()[i].first);
      Tensor target = fresh->state()[i].second;
      target.copy_from(optimizer->state()[i].second);
    }
    fresh->set_step_count(optimizer->step_count());
    for (int i = 0; i < 3; ++i) {
      original.step(*optimizer);
      restored.step(*fresh);
    }
    CHECK(values(original.parameter.value()) == values(restored.parameter.value()));
    CHECK(fresh->step_count() == 6);
  }
}

// The expected values are Adam's by hand, with the second average and its correction of step 2.
TEST_CASE("Adam's second average stays after freeze_step") {
  for (const char* name : {"adam", "adamw"}) {
    Problem problem;
    const optim::OptimOptions options{.lr = 0.1, .freeze_step = 2};
    const auto optimizer = optim::make_optimizer(name, options, problem.named());
    auto expected = values(problem.parameter.value());
    std::vector<double> m(expected.size()), v(expected.size());
    for (int t = 1; t <= 6; ++t) {
      problem.step(*optimizer);
      const auto gradient = values(problem.parameter.grad());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        m[i] = 0.9 * m[i] + 0.1 * gradient[i];
        if (t <= 2) v[i] = 0.999 * v[i] + 0.001 * gradient[i] * gradient[i];
        const double root = std::sqrt(v[i] / (1 - std::pow(0.999, std::min(t, 2))));
        expected[i] -= static_cast<float>(0.1 * m[i] / (1 - std::pow(0.9, t)) / (root + 1e-8));
      }
    }
    const auto found = values(problem.parameter.value());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-5));
  }
}

TEST_CASE("the state has names and is there before the first step") {
  Problem problem;
  const auto adam = optim::make_optimizer("adam", {}, problem.named());
  REQUIRE(adam->state().size() == 2);
  CHECK(adam->state()[0].first == "p.exp_avg");
  CHECK(adam->state()[1].first == "p.exp_avg_sq");
  CHECK(values(adam->state()[0].second) == std::vector<float>{0, 0, 0});
  CHECK(optim::make_optimizer("sgd", {}, problem.named())->state().empty());
  CHECK(optim::make_optimizer("sgd", {.momentum = 0.9}, problem.named())->state()[0].first == "p.momentum_buffer");
  const auto dampened = optim::make_optimizer("sgd", {.momentum = 0.9, .dampening = 0.1}, problem.named());
  REQUIRE(dampened->state().size() == 2);
  CHECK(dampened->state()[1].first == "p.momentum_started");
  CHECK(dampened->state()[1].second.item() == 0);
}

TEST_CASE("muon keeps a momentum of matrices and Adam's means of other parameters") {
  const Variable matrix{Tensor::zeros({2, 3}), true}, bias{Tensor::zeros({3}), true};
  const auto muon = optim::make_optimizer("muon", {}, optim::NamedParameters{{"w", matrix}, {"b", bias}});
  REQUIRE(muon->state().size() == 3);
  CHECK(muon->state()[0].first == "w.momentum_buffer");
  CHECK(muon->state()[1].first == "b.exp_avg");
  CHECK(muon->state()[2].first == "b.exp_avg_sq");
}

TEST_CASE("muon takes each matrix of a parameter of three dimensions by itself, and biases of experts as biases") {
  Generator generator(7);
  Tensor both = Tensor::empty({2, 3, 4});
  fill_normal(both, 0, 1, generator);
  Variable experts{both, true}, bias{Tensor::full({2, 3}, 1), true};
  std::vector<Variable> alone;
  for (const std::int64_t e : {0, 1}) alone.emplace_back(kernels::scale(both.select(0, e), 1), true);
  const optim::OptimOptions options{.lr = 0.1, .momentum = 0.9};
  const auto of_experts = optim::make_optimizer(
      "muon", options, optim::NamedParameters{{"experts.weight", experts}, {"experts.bias", bias}});
  const auto of_each =
      optim::make_optimizer("muon", options, optim::NamedParameters{{"first", alone[0]}, {"second", alone[1]}});
  REQUIRE(of_experts->state().size() == 3);
  CHECK(of_experts->state()[1].first == "experts.bias.exp_avg");
  for (int step = 0; step < 2; ++step) {
    of_experts->zero_grad();
    of_each->zero_grad();
    add(sum(mul(experts, experts)), sum(bias)).backward();
    for (const Variable& matrix : alone) sum(mul(matrix, matrix)).backward();
    of_experts->step();
    of_each->step();
  }
  auto expected = values(alone[0].value());
  const auto second = values(alone[1].value());
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK(values(experts.value()) == expected);
}

TEST_CASE("all matrices take part in muon's exchange of parts, also those without a gradient, which stay as they are") {
  struct Recorder final : optim::TensorParts {
    Shape whole_shape(const std::string&) const override { return {2, 3}; }
    void add_up(const std::vector<std::string>&, std::span<double>) override {}
    void transform(std::size_t, const std::vector<std::pair<std::string, Tensor>>& parts,
                   const std::function<void(Tensor& whole)>&) override {
      names.emplace_back();
      for (const auto& [name, part] : parts) names.back().push_back(name);
    }
    std::vector<std::vector<std::string>> names;
  };
  const auto parts = std::make_shared<Recorder>();
  Variable unused{Tensor::zeros({2, 3}), true}, used{Tensor::zeros({2, 3}), true};
  const auto muon = optim::make_optimizer("muon", {.lr = 0.1, .parts = parts},
                                          optim::NamedParameters{{"unused", unused}, {"used", used}});
  for (const bool both : {true, false}) {
    muon->zero_grad();
    (both ? sum(add(unused, used)) : sum(used)).backward();
    const auto before = values(unused.value());
    muon->step();
    CHECK((values(unused.value()) == before) == !both);
  }
  const std::vector<std::string> all{"unused", "used"};
  CHECK(parts->names == std::vector{all, all});
}

TEST_CASE("parameters and gradients of zeros stay finite where norms divide") {
  for (const auto* name : {"lamb", "lars", "muon"}) {
    Variable matrix{Tensor::zeros({2, 3}), true};
    const auto optimizer = optim::make_optimizer(name, {.lr = 0.1}, optim::NamedParameters{{"w", matrix}});
    sum(mul(matrix, matrix)).backward();
    optimizer->step();
    INFO(name);
    CHECK(values(matrix.value()) == std::vector<float>(6, 0));
    optimizer->zero_grad();
    sum(matrix).backward();
    optimizer->step();
    for (const float value : values(matrix.value())) CHECK(value < 0);
  }
}

TEST_CASE("optimizers that need whole tensors are not elementwise") {
  for (const auto name : optim::optimizer_names()) {
    INFO(name);
    CHECK(optim::is_elementwise(name) == (name != "lamb" && name != "lars" && name != "muon"));
  }
}

TEST_CASE("the learning rate can change between steps") {
  Problem problem;
  const auto sgd = optim::make_optimizer("sgd", {.lr = 0.25}, problem.named());
  problem.step(*sgd);
  CHECK(values(problem.parameter.value()) == std::vector<float>{0.5, -1, 0.25});
  sgd->set_lr(0);
  CHECK(sgd->lr() == 0);
  problem.step(*sgd);
  CHECK(values(problem.parameter.value()) == std::vector<float>{0.5, -1, 0.25});
}

TEST_CASE("a parameter without a gradient is left alone") {
  Problem problem;
  const auto sgd = optim::make_optimizer("sgd", {.lr = 0.25, .weight_decay = 1}, problem.named());
  sgd->step();
  CHECK(values(problem.parameter.value()) == std::vector<float>{1, -2, 0.5});
}

TEST_CASE("a wrong name or value is one line") {
  Problem problem;
  CHECK_THROWS_WITH(optim::make_optimizer("adm", {}, problem.named()),
                    "there is no optimizer 'adm'; there are: sgd, adam, adamw, rmsprop, adagrad, lamb, lars, muon");
  CHECK_THROWS_WITH(optim::make_optimizer("sgd", {.lr = -1}, problem.named()), Catch::Contains("lr is -1"));
  CHECK_THROWS_WITH(optim::make_optimizer("adam", {.beta2 = 1}, problem.named()), Catch::Contains("beta2 is 1"));
  CHECK_THROWS_WITH(optim::make_optimizer("sgd", {.dampening = -1}, problem.named()),
                    Catch::Contains("dampening is -1"));
  CHECK_THROWS_WITH(optim::make_optimizer("sgd", {.nesterov = true}, problem.named()),
                    "optimizer: nesterov needs a momentum and no dampening, not 0 and 0");
  CHECK_THROWS_WITH(
      optim::make_optimizer("sgd", {.momentum = 0.9, .dampening = 0.5, .nesterov = true}, problem.named()),
      "optimizer: nesterov needs a momentum and no dampening, not 0.9 and 0.5");
}

TEST_CASE("each group has its own learning rate and weight decay") {
  Problem fast, slow;
  const std::vector<optim::ParameterGroup> groups = {
      {.parameters = {{"fast", fast.parameter}}, .options = {.lr_factor = 2, .weight_decay = 0}},
      {.parameters = {{"slow", slow.parameter}}, .options = {}}};
  const auto sgd = optim::make_optimizer("sgd", {.lr = 0.125, .weight_decay = 2}, groups);
  sum(add(mul(fast.parameter, fast.parameter), mul(slow.parameter, slow.parameter))).backward();
  sgd->step();
  CHECK(values(fast.parameter.value()) == std::vector<float>{0.5, -1, 0.25});  // p - 2 lr 2 p
  CHECK(values(slow.parameter.value()) == std::vector<float>{0.5, -1, 0.25});  // p - lr (2 p + 2 p)
  sgd->set_lr(0.0625);
  sgd->step();
  CHECK(values(fast.parameter.value()) == std::vector<float>{0.25, -0.5, 0.125});
  sgd->zero_grad();
  CHECK_FALSE(slow.parameter.grad().defined());
}

TEST_CASE("parameters of one dimension are split off, without weight decay") {
  const Variable matrix(Tensor::zeros({2, 3}), true), bias(Tensor::zeros({3}), true), scalar(Tensor::zeros({}), true);
  const auto groups = optim::split_one_dimensional({{"bias", bias}, {"matrix", matrix}, {"scalar", scalar}});
  REQUIRE(groups.size() == 2);
  REQUIRE(groups[0].parameters.size() == 1);
  CHECK(groups[0].parameters[0].second.is(matrix));
  CHECK_FALSE(groups[0].options.weight_decay.has_value());
  REQUIRE(groups[1].parameters.size() == 2);
  CHECK(groups[1].parameters[0].second.is(bias));
  CHECK(groups[1].options.weight_decay == 0);
  CHECK(optim::split_one_dimensional({{"matrix", matrix}}).size() == 1);
}

TEST_CASE("wrong groups are one line") {
  Problem problem, other;
  const auto make = [](const std::vector<optim::ParameterGroup>& groups) { optim::make_optimizer("sgd", {}, groups); };
  CHECK_THROWS_WITH(make({{.parameters = problem.named(), .options = {}},
                          {.parameters = {{"again", problem.parameter}}, .options = {}}}),
                    "optimizer: parameter again is in two groups");
  CHECK_THROWS_WITH(
      make({{.parameters = problem.named(), .options = {}}, {.parameters = other.named(), .options = {}}}),
      "optimizer: two parameters are named p");
  CHECK_THROWS_WITH(make({{.parameters = problem.named(), .options = {.lr_factor = -1}}}),
                    Catch::Contains("a group's lr_factor is -1"));
  CHECK_THROWS_WITH(make({{.parameters = problem.named(), .options = {.weight_decay = -1}}}),
                    Catch::Contains("a group's weight_decay is -1"));
}

TEST_CASE("a step and clipping allocate no tensor") {
  const Device device{DeviceType::cpu, 1};
  Variable parameter(Tensor::full({100}, 1, DType::float32, device), true);
  const optim::NamedParameters named{{"p", parameter}};
  sum(mul(parameter, parameter)).backward();
  for (const char* name : {"sgd", "adam", "adamw"}) {
    const auto optimizer = optim::make_optimizer(name, {.momentum = 0.9, .dampening = 0.1}, named);
    reset_peak_memory(device);
    const auto before = memory_stats(device).allocated;
    optim::clip_grad_norm(named, 0.1);
    optim::clip_grad_value(named, 0.01);
    optimizer->step();
    CHECK(memory_stats(device).peak == before);
  }
}
