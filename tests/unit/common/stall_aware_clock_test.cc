#include "common/stall_aware_clock.h"

#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_CASE("a stall-aware clock counts the time while it is called periodically") {
  StallAwareClock clock(500ms);
  const StallAwareClock::Clock::time_point start(100s);
  clock.advance(start);
  for (int i = 1; i <= 4; ++i) clock.advance(start + i * 500ms);
  CHECK(clock.elapsed() == 2s);
  CHECK(clock.reliable());
}

TEST_CASE("a stall counts as one period, and the clock is not reliable for one period after it") {
  StallAwareClock clock(500ms);
  const StallAwareClock::Clock::time_point start(100s);
  clock.advance(start);
  clock.advance(start + 1h);
  CHECK(clock.elapsed() == 500ms);
  CHECK_FALSE(clock.reliable());
  clock.advance(start + 1h + 1ms);  // queued heartbeats are being read
  CHECK_FALSE(clock.reliable());
  clock.advance(start + 1h + 500ms);
  CHECK(clock.reliable());
}

TEST_CASE("a clock that is always called late still advances") {
  StallAwareClock clock(500ms);
  for (int i = 0; i <= 10; ++i) clock.advance(StallAwareClock::Clock::time_point(100s + i * 3s));
  CHECK(clock.elapsed() == 5s);
}
