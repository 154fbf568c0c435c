#include "worker/comm/execution/progress_lock.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun::comm;

TEST_CASE("one thread at a time holds the lock, and every thread gets it") {
  constexpr int threads = 4, rounds = 500;
  ProgressLock lock;
  int taken = 0;  // guarded by the lock
  std::vector<std::thread> takers;
  for (int i = 0; i < threads; ++i) {
    takers.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        const std::lock_guard held(lock);
        const int before = taken;
        std::this_thread::yield();  // to threads that must not get the lock now
        taken = before + 1;
      }
    });
  }
  for (auto& each : takers) each.join();
  CHECK(taken == threads * rounds);
}

// The first sleep would outlast the test: only the release ends it.
TEST_CASE("a release wakes a waiter") {
  ProgressLock lock(std::chrono::hours(24));
  std::unique_lock held(lock);
  CHECK_FALSE(lock.try_lock());
  std::atomic<bool> released = false;
  bool locked_after_release = false;
  std::thread waiter([&] {
    const std::lock_guard held_next(lock);
    locked_after_release = released;
  });
  while (!lock.has_waiter()) std::this_thread::yield();
  released = true;
  held.unlock();
  waiter.join();
  CHECK(locked_after_release);
  CHECK_FALSE(lock.has_waiter());
  CHECK(lock.try_lock());
  lock.unlock();
}
