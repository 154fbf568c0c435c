#include "rendezvous/store/backoff.h"

#include "rendezvous/store/log_limiter.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_CASE("delays grow by the factor up to the cap") {
  Backoff backoff{.jitter = 0};
  std::minstd_rand generator;
  std::vector<double> delays;
  for (int i = 0; i < 20; ++i)
    delays.push_back(std::chrono::duration<double, std::milli>(backoff.next(generator)).count());
  CHECK(delays[0] == Approx(5));
  CHECK(delays[1] == Approx(7.5));
  CHECK(delays[2] == Approx(11.25));
  CHECK(delays[19] == Approx(2000));
}

TEST_CASE("jitter spreads each delay from half to one and a half") {
  std::minstd_rand generator;
  std::chrono::nanoseconds least{1h}, most{0};
  for (int i = 0; i < 1000; ++i) {
    Backoff backoff{.interval = 100ms};
    const auto delay = backoff.next(generator);
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  CHECK(least >= 50ms);
  CHECK(least < 60ms);
  CHECK(most <= 150ms);
  CHECK(most > 140ms);
}

TEST_CASE("the log limiter admits a burst and reports how many lines it suppressed") {
  rendezvous::LogLimiter limiter({.burst = 2, .window = 10s});
  const auto start = rendezvous::LogLimiter::Clock::time_point(100s);
  CHECK(limiter.admit(start) == 0u);
  CHECK(limiter.admit(start) == 0u);
  CHECK(limiter.admit(start + 1s) == std::nullopt);
  CHECK(limiter.admit(start + 9s) == std::nullopt);
  CHECK(limiter.admit(start + 10s) == 2u);
  CHECK(limiter.admit(start + 11s) == 0u);
  CHECK(limiter.admit(start + 12s) == std::nullopt);
}
