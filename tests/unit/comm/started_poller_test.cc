#include "worker/comm/execution/started_poller.h"

#include <atomic>
#include <latch>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "tests/support/catch.h"

using namespace ddprun::comm;

namespace {

// Notes which threads call, and when both of two functions were called.
class Calls {
 public:
  explicit Calls(int number) : missing_(number) {}
  StartedPoller::Function function() {
    return [this, first = std::make_shared<bool>(true)] {
      {
        const std::lock_guard lock(mutex_);
        threads_.insert(std::this_thread::get_id());
      }
      if (std::exchange(*first, false)) missing_.count_down();
    };
  }
  std::set<std::thread::id> threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }
  void await_all() const { missing_.wait(); }

 private:
  mutable std::mutex mutex_;
  std::set<std::thread::id> threads_;
  std::latch missing_;
};

}  // namespace

TEST_CASE("one thread of the process calls all polls, after what it begins with") {
  std::thread::id begun;
  const auto begin = [&] { begun = std::this_thread::get_id(); };
  Calls calls(2);
  const StartedPoller::Registration first(StartedPoller::of_process(begin), calls.function());
  const StartedPoller::Registration second(StartedPoller::of_process([] { FAIL("the thread has begun before"); }),
                                           calls.function());
  calls.await_all();
  CHECK(calls.threads() == std::set{begun});
  CHECK(begun != std::this_thread::get_id());
}

TEST_CASE("the thread ends with the last poll, and another begins with the next one") {
  int begun = 0;
  for (int i = 0; i < 2; ++i) const StartedPoller::Registration one(StartedPoller::of_process([&] { ++begun; }), [] {});
  CHECK(begun == 2);
}

TEST_CASE("a poll is removed once no call of it is in progress, while others go on") {
  const auto poller = std::make_shared<StartedPoller>([] {});
  std::latch called(1), removing(1);
  std::atomic<bool> in_progress = false;
  std::optional<StartedPoller::Registration> slow;
  slow.emplace(poller, [&, first = true]() mutable {
    in_progress = true;
    if (std::exchange(first, false)) {
      called.count_down();
      removing.wait();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    }
    in_progress = false;
  });
  called.wait();
  removing.count_down();
  slow.reset();
  CHECK_FALSE(in_progress);
  Calls calls(1);
  const StartedPoller::Registration other(poller, calls.function());
  calls.await_all();
}
