#include "ddprun/worker/comm/transport/turn_lock.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun::comm;

TEST_CASE("a turn is one thread's at a time, and everybody's in the end") {
  constexpr int threads = 4, turns = 500;
  TurnLock lock;
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

TEST_CASE("a turn that is taken is not to be had until it is given back") {
  TurnLock lock;
  std::unique_lock own(lock);
  CHECK_FALSE(lock.try_lock());
  std::atomic<bool> comes = false, given_back = false, waited = false;
  std::thread waiter([&] {
    comes = true;
    const std::lock_guard next(lock);
    waited = given_back.load();
  });
  while (!comes) std::this_thread::yield();
  given_back = true;
  own.unlock();
  waiter.join();
  CHECK(waited);
  CHECK(lock.try_lock());
  lock.unlock();
}
