// How long a wait for a counter in shared memory stays awake.
#include "worker/comm/backends/shm/futex_counter.h"

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <thread>

#include "tests/support/catch.h"

using namespace ddprun::comm;

namespace {

constexpr int for_ever = std::numeric_limits<int>::max();

}  // namespace

TEST_CASE("a wait for a message ends its spinning if nobody waits for the message, or another one is exchanged") {
  const auto [exchanged, is_awaited] = GENERATE(table<int, bool>({{1, false}, {2, true}, {2, false}}));
  const SpinPolicy policy =
      GENERATE(SpinPolicy{.spins = for_ever}, SpinPolicy{.spins = spins_before_await, .yields = for_ever});
  const std::atomic<int> messages = exchanged;
  const std::atomic<bool> awaited = is_awaited;
  FutexCounter counter;
  std::promise<void> returned;
  // A wait that does not end is found by a result that should not be.
  std::thread owner([&, end = returned.get_future()] {
    if (end.wait_for(std::chrono::seconds(30)) != std::future_status::ready) counter.increment();
  });
  CHECK_FALSE(counter.spin(1, policy, MessageWait{messages, &awaited}));
  returned.set_value();
  owner.join();
  counter.increment();
  CHECK(counter.spin(1, policy, MessageWait{messages, &awaited}));
}

TEST_CASE("a wait for the only message that a rank exchanges spins until the counter is reached, if somebody waits") {
  const std::atomic<int> messages = 1;
  const std::atomic<bool> awaited = true;
  std::atomic<bool> spins = false;
  FutexCounter counter;
  std::thread owner([&] {
    while (!spins) std::this_thread::yield();
    counter.increment();
  });
  spins = true;
  CHECK(counter.spin(1, {.spins = for_ever}, MessageWait{messages, &awaited}));
  owner.join();
}
