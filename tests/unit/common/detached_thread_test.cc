#include "common/detached_thread.h"

#include <atomic>
#include <csignal>
#include <latch>
#include <memory>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("detached threads run their bodies, and destroy them when they end") {
  constexpr int count = 1000;
  std::atomic<int> runs = 0;
  std::latch destroyed(count);
  const auto tell = [](std::latch* latch) { latch->count_down(); };
  for (int i = 0; i < count; ++i)
    start_detached_thread([&runs, body = std::unique_ptr<std::latch, decltype(tell)>(&destroyed, tell)] { ++runs; });
  destroyed.wait();
  CHECK(runs == count);
}

TEST_CASE("a detached thread blocks signals") {
  std::atomic<bool> is_blocked = false;
  std::latch ended(1);
  start_detached_thread([&] {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    is_blocked = sigismember(&blocked, SIGTERM) == 1;
    ended.count_down();
  });
  ended.wait();
  CHECK(is_blocked);
}
