#include "common/deadline.h"

#include "common/whole_milliseconds.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_CASE("the remaining time of a deadline decreases to zero") {
  const auto start = Deadline::Clock::time_point(100s);
  const auto deadline = Deadline::in(5s, start);
  CHECK(deadline.remaining(start + 2s) == 3s);
  CHECK_FALSE(deadline.expired(start + 4999ms));
  CHECK(deadline.expired(start + 5s));
  CHECK(deadline.remaining(start + 9s) == 0s);
}

TEST_CASE("Deadline::never() does not expire and polls without a timeout") {
  const auto never = Deadline::never();
  CHECK_FALSE(never.expired(Deadline::Clock::time_point::max()));
  CHECK(never.poll_timeout_ms() == -1);
  CHECK(whole_milliseconds(never) == std::chrono::hours(24 * 365));
  CHECK(Deadline::in(Deadline::Duration::max()).when() == std::nullopt);
}

TEST_CASE("a deadline at the earliest time point has expired") {
  const auto past = Deadline::at(Deadline::Clock::time_point::min());
  CHECK(past.expired());
  CHECK(past.remaining() == 0s);
  CHECK(past.poll_timeout_ms() == 0);
  CHECK(whole_milliseconds(past) == 1ms);
}

TEST_CASE("a poll never wakes before the deadline") {
  const auto start = Deadline::Clock::time_point(1s);
  CHECK(Deadline::in(1ns, start).poll_timeout_ms(start) == 1);
  CHECK(whole_milliseconds(Deadline::in(1'000'001ns, start), start) == 2ms);
  CHECK(Deadline::in(2ms, start).poll_timeout_ms(start) == 2);
}

TEST_CASE("earlier() returns the earlier of two deadlines") {
  const auto start = Deadline::Clock::time_point(1s);
  CHECK(earlier(Deadline::in(2s, start), Deadline::in(1s, start)).remaining(start) == 1s);
  CHECK(earlier(Deadline::never(), Deadline::in(1s, start)).remaining(start) == 1s);
}
