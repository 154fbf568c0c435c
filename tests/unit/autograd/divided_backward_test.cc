// autograd::DividedBackward: the gradient of an input first, those of the weights later.
#include "worker/autograd/autocast.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/node.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

struct Net {
  Variable input{random_tensor({3, 4, 8}, 1), true};
  Variable w1{random_tensor({8, 8}, 2), true}, b1{random_tensor({8}, 3), true}, w2{random_tensor({8, 8}, 4), true};
  Variable gain{random_tensor({8}, 5), true}, shift{random_tensor({8}, 6), true};
  Variable scale{random_tensor({8}, 7), true};  // belongs to a branch without the input

  std::vector<Variable> weights() const { return {w1, b1, w2, gain, shift, scale}; }

  // w1 is used twice; the branch of only weights is computed on the tape as well.
  Variable forward(bool checkpointed) const {
    const auto block = [this](const std::vector<Variable>& x) {
      return add(x[0], linear(gelu_tanh(linear(layer_norm(x[0], gain, shift, 1e-5), w1, b1)), w2));
    };
    const Variable middle = checkpointed ? autograd::checkpoint(block, {input}) : block({input});
    return mul(linear(middle, w1), relu(mul(scale, scale)));
  }
};

autograd::DividedBackward begin(const Net& net, const Variable& result, const Tensor& gradient) {
  return {{{autograd::Access::edge(result), gradient}}, net.input};
}

}  // namespace

TEST_CASE("a divided pass gives the gradients of a whole one, the input's before the weights'") {
  const Tensor gradient = random_tensor({3, 4, 8}, 9);
  for (const DType precision : {DType::float32, DType::bfloat16}) {
    const autograd::AutocastScope autocast(precision);
    const Net whole, divided;
    const Variable expected = whole.forward(false), result = divided.forward(false);
    const Tensor seed = gradient.to(expected.dtype());
    expected.backward(seed);
    std::vector<int> order;
    std::vector<Variable::Hook> hooks;
    for (int w = 0; const Variable& weight : divided.weights())
      hooks.push_back(weight.on_grad_ready([&order, w = w++] { order.push_back(w); }));
    auto pass = begin(divided, result, seed);
    CHECK(same_bits(divided.input.grad(), whole.input.grad()));
    CHECK(order.empty());
    for (const Variable& weight : divided.weights()) CHECK_FALSE(weight.grad().defined());
    pass.finish();
    CHECK(order.size() == 6);
    for (std::size_t w = 0; w < 6; ++w) CHECK(same_bits(divided.weights()[w].grad(), whole.weights()[w].grad()));
  }
}

TEST_CASE("what a checkpoint recomputes is not divided, and computed once") {
  const Net whole, divided;
  const Tensor gradient = random_tensor({3, 4, 8}, 9);
  whole.forward(true).backward(gradient);
  auto pass = begin(divided, divided.forward(true), gradient);
  CHECK(same_bits(divided.input.grad(), whole.input.grad()));
  CHECK(divided.w2.grad().defined());
  CHECK_FALSE(divided.scale.grad().defined());
  pass.finish();
  for (std::size_t w = 0; w < 6; ++w) CHECK(same_bits(divided.weights()[w].grad(), whole.weights()[w].grad()));
}

TEST_CASE("several divided passes may be open, and their tapes are walked once") {
  const Net whole, divided;
  const Tensor gradient = random_tensor({3, 4, 8}, 9);
  for (int i = 0; i < 2; ++i) whole.forward(false).backward(gradient);
  const Variable first = divided.forward(false), second = divided.forward(false);
  auto first_pass = begin(divided, first, gradient), second_pass = begin(divided, second, gradient);
  first_pass.finish();
  second_pass.finish();
  CHECK(same_bits(divided.input.grad(), whole.input.grad()));
  for (std::size_t w = 0; w < 6; ++w) CHECK(same_bits(divided.weights()[w].grad(), whole.weights()[w].grad()));
  CHECK_THROWS_WITH(first.backward(gradient), Catch::Contains("already walked"));
}
