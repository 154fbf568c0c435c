#include "worker/autograd/interruption.h"

#include "common/error.h"
#include "worker/autograd/operation.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/reduce.h"
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
