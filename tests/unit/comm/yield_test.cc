#include "worker/comm/execution/yield.h"

#include "tests/support/catch.h"

using namespace ddprun::comm;

TEST_CASE("waits yield as long as yields are short") {
  YieldDecision decision;
  for (int i = 0; i < 1000; ++i) {
    CHECK(decision.may_yield());
    CHECK(decision.has_yielded(YieldDecision::longest));
  }
}

TEST_CASE("after a yield that has lasted so many waits sleep, and the next one tries again") {
  YieldDecision decision;
  for (int round = 0; round < 3; ++round) {
    CHECK(decision.may_yield());
    CHECK_FALSE(decision.has_yielded(YieldDecision::longest + std::chrono::nanoseconds(1)));
    for (int i = 0; i < YieldDecision::waits_without; ++i) CHECK_FALSE(decision.may_yield());
  }
  CHECK(decision.may_yield());
}
