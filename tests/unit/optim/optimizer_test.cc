#include "ddprun/worker/optim/optimizer.h"

#include <cstring>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/ops.h"
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

TEST_CASE("writing the saved state into a new optimizer goes on with the same bits") {
  for (const char* name : {"adam", "sgd"}) {
    const optim::OptimOptions options{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};
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

TEST_CASE("the state has names and is there before the first step") {
  Problem problem;
  const auto adam = optim::make_optimizer("adam", {}, problem.named());
  REQUIRE(adam->state().size() == 2);
  CHECK(adam->state()[0].first == "p.exp_avg");
  CHECK(adam->state()[1].first == "p.exp_avg_sq");
  CHECK(values(adam->state()[0].second) == std::vector<float>{0, 0, 0});
  CHECK(optim::make_optimizer("sgd", {}, problem.named())->state().empty());
  CHECK(optim::make_optimizer("sgd", {.momentum = 0.9}, problem.named())->state()[0].first == "p.momentum_buffer");
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
                    "there is no optimizer 'adm'; there are: sgd, adam");
  CHECK_THROWS_WITH(optim::make_optimizer("sgd", {.lr = -1}, problem.named()), Catch::Contains("lr is -1"));
  CHECK_THROWS_WITH(optim::make_optimizer("adam", {.beta2 = 1}, problem.named()), Catch::Contains("beta2 is 1"));
}
