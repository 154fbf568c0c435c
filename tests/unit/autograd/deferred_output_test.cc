// An output layer leaves its product to the caller of the model, if the caller requests it.
#include "worker/autograd/deferred_output.h"

#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;
using autograd::DeferredOutput;

TEST_CASE("one output layer leaves its weight to the caller in whose scope it computes") {
  const Variable weight(random_tensor({3, 4}, 1), true), other(random_tensor({3, 4}, 2), true);
  CHECK_FALSE(DeferredOutput::take(weight));
  {
    const DeferredOutput output(true);
    CHECK_FALSE(output.weight().defined());
    CHECK(DeferredOutput::take(weight));
    CHECK(output.weight().is(weight));
    CHECK_FALSE(DeferredOutput::take(other));  // a second one computes its scores
    CHECK(output.weight().is(weight));
  }
  CHECK_FALSE(DeferredOutput::take(weight));
}

TEST_CASE("a scope that wants scores hides the one around it") {
  const Variable weight(random_tensor({3, 4}, 1), true);
  const DeferredOutput outer(true);
  {
    const DeferredOutput inner(false);
    CHECK_FALSE(DeferredOutput::take(weight));
    CHECK_FALSE(inner.weight().defined());
  }
  CHECK(DeferredOutput::take(weight));
  CHECK(outer.weight().is(weight));
}
