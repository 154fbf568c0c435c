#include "worker/autograd/checkpoint.h"

#include "worker/autograd/function.h"
#include "tests/support/numerics.h"
#include "tests/support/saved_tensors.h"

using namespace ddprun;
using namespace ddprun::test;

using Inputs = std::vector<Variable>;

namespace {

// Two linear layers with dropout between them, and a number drawn from the generator after them.
struct Layers {
  Variable first{random_tensor({8, 6}, 1), true}, second{random_tensor({3, 8}, 2), true};
  Generator generator{7};

  Variable operator()(const Inputs& in) { return linear(dropout(gelu(linear(in[0], first)), 0.3, generator), second); }
};

struct Outcome {
  Tensor value;
  std::vector<Tensor> gradients;
  double drawn_next;
};

Outcome run(bool recompute, DType precision = DType::float32) {
  Layers layers;
  const Variable x(random_tensor({5, 6}, 3), true);
  const autograd::CheckpointFunction function = [&](const Inputs& in) { return layers(in); };
  Variable y;
  {
    const autograd::AutocastScope scope(precision);
    const Variable inner = mul(x, 2);
    y = recompute ? autograd::checkpoint(function, {inner}) : function({inner});
  }
  sum(mul(y, y)).backward();
  return {y.value(), {x.grad(), layers.first.grad(), layers.second.grad()}, layers.generator.uniform()};
}

}  // namespace

TEST_CASE("what is computed again has the same bits, dropout and autocast included") {
  for (const DType precision : {DType::float32, DType::bfloat16}) {
    const Outcome with = run(true, precision), without = run(false, precision);
    CHECK(same_bits(with.value, without.value));
    for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(with.gradients[i], without.gradients[i]));
    CHECK(with.drawn_next == without.drawn_next);
  }
}

TEST_CASE("a checkpoint keeps its inputs alone, and calls its function once more") {
  Layers layers;
  const Variable x(random_tensor({5, 6}, 3), true);
  std::vector<bool> calls;
  const Variable y = autograd::checkpoint(
      [&](const Inputs& in) {
        calls.push_back(autograd::is_recomputing());
        return layers(in);
      },
      {x});
  REQUIRE(testing::saved_tensors(y).size() == 1);
  CHECK(testing::saved_tensors(y)[0].raw() == x.value().raw());
  sum(y).backward();
  CHECK(calls == std::vector<bool>{false, true});
}

TEST_CASE("the second call may use Winograd's algorithm where the first one may") {
  const Variable x(random_tensor({2, 3}, 1), true);
  std::vector<bool> allowed;
  const autograd::CheckpointFunction function = [&](const Inputs& in) {
    allowed.push_back(WinogradScope::allowed());
    const Variable y = mul(in[0], in[0]);
    return mul(y, y);
  };
  Variable y;
  {
    const WinogradScope scope;
    y = autograd::checkpoint(function, {x});
  }
  sum(y).backward();
  CHECK(allowed == std::vector<bool>{true, true});
}

TEST_CASE("checkpoints nest") {
  const auto gradients = [](bool recompute) {
    Layers layers;
    Variable outer_weight(random_tensor({6, 6}, 5), true);
    const Variable x(random_tensor({5, 6}, 3), true);
    const autograd::CheckpointFunction inner = [&](const Inputs& in) { return layers(in); };
    const autograd::CheckpointFunction outer = [&](const Inputs& in) {
      const Variable y = dropout(linear(in[0], outer_weight), 0.5, layers.generator);
      return recompute ? autograd::checkpoint(inner, {y}) : inner({y});
    };
    sum(recompute ? autograd::checkpoint(outer, {x}) : outer({x})).backward();
    return Inputs{Variable(x.grad()), Variable(layers.first.grad()), Variable(outer_weight.grad())};
  };
  const auto with = gradients(true), without = gradients(false);
  for (std::size_t i = 0; i < with.size(); ++i) CHECK(same_bits(with[i].value(), without[i].value()));
}

TEST_CASE("a hook runs once, when the gradients from within a checkpoint and from outside are there") {
  Variable w(Tensor::full({2, 2}, 1), true);
  std::vector<double> seen;
  const auto hook = w.on_grad_ready([&] { seen.push_back(w.grad().data<float>()[0]); });
  int ends = 0;
  const auto other = w.on_grad_ready([&] { at_end_of_backward([&] { ends += seen.size() == 1 ? 1 : 100; }); });
  const Variable x(Tensor::full({1, 2}, 1));
  const Variable y = autograd::checkpoint([&](const Inputs& in) { return linear(in[0], w); }, {linear(x, w)});
  sum(y).backward();
  CHECK(seen == std::vector<double>{4});
  CHECK(ends == 1);
}

TEST_CASE("an input without a gradient does not keep parameters from having one") {
  Layers layers;
  sum(autograd::checkpoint([&](const Inputs& in) { return layers(in); }, {Variable(random_tensor({5, 6}, 3))}))
      .backward();
  CHECK(layers.first.grad().defined());
}

TEST_CASE("nothing is recorded where recording is off, or where nothing requires a gradient") {
  const Variable x(random_tensor({2, 3}, 1), true);
  const autograd::CheckpointFunction twice = [](const Inputs& in) { return mul(in[0], 2); };
  CHECK_FALSE(autograd::checkpoint(twice, {x.detach()}).requires_grad());
  const NoGradScope no_grad;
  CHECK_FALSE(autograd::checkpoint(twice, {x}).requires_grad());
}

TEST_CASE("a function that uses a result from outside is an error that names both operations") {
  const Variable x(random_tensor({2, 3}, 1), true), outside = exp(x);
  CHECK_THROWS_WITH(autograd::checkpoint([&](const Inputs& in) { return mul(in[0], outside); }, {x}),
                    Catch::Contains("mul uses the result of exp") && Catch::Contains("none of its inputs"));
}

TEST_CASE("a function that gives something else the second time is an error") {
  const Variable x(random_tensor({4, 3}, 1), true);
  int call = 0;
  const Variable y = autograd::checkpoint([&](const Inputs& in) { return slice(in[0], 0, 0, 4 - call++); }, {x});
  CHECK_THROWS_WITH(sum(y).backward(), Catch::Contains("[4, 3]") && Catch::Contains("[3, 3]"));
}

TEST_CASE("running statistics count a batch once") {
  const auto statistics = [](bool recompute) {
    Tensor mean = Tensor::zeros({3}), variance = Tensor::full({3}, 1);
    const Variable x(random_tensor({8, 3}, 1), true), weight(Tensor::full({3}, 1), true),
        bias(Tensor::zeros({3}), true);
    const autograd::CheckpointFunction norm = [&](const Inputs& in) {
      return batch_norm(in[0], weight, bias, mean, variance, {});
    };
    sum(recompute ? autograd::checkpoint(norm, {x}) : norm({x})).backward();
    return values(mean);
  };
  CHECK(statistics(true) == statistics(false));
}

TEST_CASE("products at the end whose values nothing needs are left out the second time") {
  const Variable x(random_tensor({4, 6}, 1), true), w(random_tensor({6, 6}, 2), true), b(random_tensor({6}, 3), true);
  const Variable v(random_tensor({6, 6}, 4), true);
  const auto gradients = [&](bool recompute, const autograd::CheckpointFunction& function, DType precision) {
    for (Variable each : {x, w, b, v}) each.zero_grad();
    const autograd::AutocastScope scope(precision);
    const std::vector<Variable> inputs{mul(x, 2)};
    const Variable y = recompute ? autograd::checkpoint(function, inputs) : function(inputs);
    mean(mul(y, y)).backward();
    return std::vector{x.grad().clone(), w.grad().clone()};
  };
  const std::vector<autograd::CheckpointFunction> functions{
      [&](const Inputs& in) { return linear(in[0], w, b); },                        // left out
      [&](const Inputs& in) { return add(addmm(b, linear(in[0], w), v), in[0]); },  // the outer one is
      [&](const Inputs& in) { return relu(linear(in[0], w)); },                     // none: relu keeps its result
      [&](const Inputs& in) { return matmul(exp(mul(linear(in[0], w, b), 0.1)), v); },
  };
  for (const DType precision : {DType::float32, DType::bfloat16}) {
    for (const auto& function : functions) {
      const auto plain = gradients(false, function, precision), again = gradients(true, function, precision);
      INFO("function " << &function - functions.data() << ", " << name_of(precision));
      for (std::size_t i = 0; i < plain.size(); ++i) CHECK(same_bits(again[i], plain[i]));
    }
  }
}
