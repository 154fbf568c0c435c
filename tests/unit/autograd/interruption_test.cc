#include "worker/autograd/interruption.h"

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/attention.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/tensor/random.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

Variable parameter() {
  Tensor values = Tensor::empty({2, 3});
  values.fill(0.5F);
  return Variable(values, true);
}

// Throws at its last call.
class Countdown {
 public:
  explicit Countdown(int calls) : left_(calls) {}

  void operator()() {
    if (--left_ == 0) throw Error(Errc::aborted, "the result is of no use");
  }
  int left() const { return left_; }

 private:
  int left_;
};

}  // namespace

TEST_CASE("a check is called before each operation, forward and backward") {
  Countdown countdown(100);
  const Variable x = parameter();
  {
    const autograd::InterruptionScope scope([&] { countdown(); });
    const Variable loss = sum(relu(x));
    CHECK(countdown.left() == 98);
    loss.backward();
    CHECK(countdown.left() == 96);
  }
  sum(relu(x)).backward();
  CHECK(countdown.left() == 96);
}

TEST_CASE("a check that throws ends a forward pass and a backward pass") {
  const Variable x = parameter();
  Countdown second(2);
  {
    const autograd::InterruptionScope scope([&] { second(); });
    const Variable positive = relu(x);
    CHECK_THROWS_WITH(sum(positive), "the result is of no use");
  }
  Countdown fourth(4);
  {
    const autograd::InterruptionScope scope([&] { fourth(); });
    const Variable loss = sum(relu(x));
    CHECK_THROWS_WITH(loss.backward(), "the result is of no use");
  }
  CHECK_FALSE(x.grad().defined());
  sum(relu(x)).backward();  // the thread computes as before
  CHECK(x.grad().data<float>()[0] == 1);
}

TEST_CASE("the innermost check is called") {
  Countdown outer(100), inner(100);
  const autograd::InterruptionScope outer_scope([&] { outer(); });
  {
    const autograd::InterruptionScope inner_scope([&] { inner(); });
    relu(parameter());
  }
  CHECK(inner.left() == 99);
  CHECK(outer.left() == 100);
  relu(parameter());
  CHECK(outer.left() == 99);
}

namespace {

Variable random(Shape shape, std::uint64_t seed) {
  Generator generator(seed);
  Tensor values = Tensor::empty(std::move(shape));
  fill_normal(values, 0, 1, generator);
  return Variable(values, true);
}

// Returns the result and the gradient of attention over eight samples of four heads.
std::vector<float> attend() {
  const Variable packed = random({8, 16, 3 * 32}, 1);
  const Variable out = packed_attention(packed, 4, {.causal = true});
  out.backward(random(out.shape(), 2).value());
  std::vector<float> all;
  for (const Tensor& tensor : {out.value(), packed.grad()})
    all.insert(all.end(), tensor.data<float>(), tensor.data<float>() + tensor.numel());
  return all;
}

}  // namespace

TEST_CASE("attention is checked between parts of its samples, and has the same bits") {
  const auto whole = attend();
  Countdown countdown(100);
  const autograd::InterruptionScope scope([&] { countdown(); });
  CHECK(attend() == whole);
  CHECK(countdown.left() == 100 - 2 - 1 - 1);  // forward and backward, each in two parts
}

TEST_CASE("a check comes before the gradient of each operand of a product") {
  const Variable x = random({4, 3}, 1), weight = random({2, 3}, 2);
  Countdown countdown(100);
  const autograd::InterruptionScope scope([&] { countdown(); });
  const Variable y = linear(x, weight);
  CHECK(countdown.left() == 99);
  y.backward(random({4, 2}, 3).value());
  CHECK(countdown.left() == 99 - 1 - 2);
}
