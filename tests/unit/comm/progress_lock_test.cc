#include "ddprun/worker/comm/execution/progress_lock.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun::comm;

TEST_CASE("a turn is one thread's at a time, and everybody's in the end") {
  constexpr int threads = 4, turns = 500;
  ProgressLock lock;
  int taken = 0;  // guarded by the lock
  std::vector<std::thread> takers;
  for (int i = 0; i < threads; ++i) {
    takers.emplace_back([&] {
      for (int turn = 0; turn < turns; ++turn) {
        const std::lock_guard own(lock);
        const int before = taken;
        std::this_thread::yield();  // to whoever may not have it now
        taken = before + 1;
      }
    });
  }
  for (auto& each : takers) each.join();
  CHECK(taken == threads * turns);
}

// Its nap would outlast the test: it is the release that ends it.
TEST_CASE("who waits for a turn gets it as it is given back") {
  ProgressLock lock(std::chrono::hours(24));
  std::unique_lock own(lock);
  CHECK_FALSE(lock.try_lock());
  std::atomic<bool> given_back = false;
  bool in_turn = false;
  std::thread waiter([&] {
    const std::lock_guard next(lock);
    in_turn = given_back;
  });
  while (!lock.awaited()) std::this_thread::yield();
  given_back = true;
  own.unlock();
  waiter.join();
  CHECK(in_turn);
  CHECK_FALSE(lock.awaited());
  CHECK(lock.try_lock());
  lock.unlock();
}
