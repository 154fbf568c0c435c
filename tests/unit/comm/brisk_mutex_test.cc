#include "ddprun/worker/comm/transport/brisk_mutex.h"

#include <atomic>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun::comm;

TEST_CASE("one holds it at a time, whether it was tried or waited for") {
  BriskMutex mutex;
  constexpr int rounds = 100'000;
  int held = 0;  // guarded by the mutex alone
  std::atomic<int> inside = 0;
  std::atomic<bool> together = false;
  const auto work = [&](bool patient) {
    for (int i = 0; i < rounds; ++i) {
      std::unique_lock lock(mutex, std::defer_lock);
      if (patient) {
        lock.lock();
      } else {
        while (!lock.try_lock()) std::this_thread::yield();
      }
      if (inside++ > 0) together = true;
      ++held;
      if (i % 8 == 0) std::this_thread::yield();  // the others try meanwhile
      --inside;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i % 2 == 0);
  for (auto& each : threads) each.join();
  CHECK_FALSE(together);
  CHECK(held == 4 * rounds);
}

TEST_CASE("it is not given twice, and comes to whoever waits") {
  BriskMutex mutex;
  REQUIRE(mutex.try_lock());
  CHECK_FALSE(mutex.try_lock());
  std::latch waiting(1);
  std::thread waiter([&] {
    waiting.count_down();
    const std::lock_guard lock(mutex);
  });
  waiting.wait();
  mutex.unlock();
  waiter.join();
  CHECK(mutex.try_lock());
  mutex.unlock();
}
