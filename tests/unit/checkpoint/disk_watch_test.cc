#include "worker/checkpoint/disk_watch.h"

#include <atomic>
#include <future>
#include <memory>
#include <semaphore>
#include <string>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::checkpoint;

namespace {

constexpr auto limit = std::chrono::hours(1);  // ten slices

// A watch whose time passes when the act says so.
class PacedWatch : public DiskWatch {
 public:
  // The act begins with this.
  void await_first_slice() { has_begun_.acquire(); }
  void end_slice() { has_ended_.release(); }
  void end_slices(int count) {
    for (int i = 0; i < count; ++i) {
      end_slice();
      has_begun_.acquire();
    }
  }
  // From now on time passes as always. The act ends with this.
  void end_pace() {
    is_paced_ = false;
    end_slice();
  }

 protected:
  void wait_for_end(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time) override {
    if (!is_paced_) return DiskWatch::wait_for_end(lock, time);
    lock.unlock();
    has_begun_.release();
    has_ended_.acquire();
    lock.lock();
  }

 private:
  std::counting_semaphore<> has_begun_{0}, has_ended_{0};
  std::atomic<bool> is_paced_ = true;
};

}  // namespace

TEST_CASE("a slow disk that answers each request in time may take any time for all") {
  const auto watch = std::make_shared<PacedWatch>();
  const auto result = DiskWatch::run(watch, limit, [watch] {
    watch->await_first_slice();
    for (int request = 0; request < 10; ++request) {
      watch->request("write a file");
      watch->end_slices(9);  // in the first of them the request has begun
    }
    watch->end_pace();
    return 1;
  });
  CHECK(result == 1);
}

TEST_CASE("an act is abandoned when a request is not answered in time, and reads nothing of its caller's then") {
  struct Shared {
    std::promise<void> is_abandoned;
    std::promise<std::string> later;
    std::atomic<int> reads = 0;
  };
  const auto shared = std::make_shared<Shared>();
  const auto watch = std::make_shared<PacedWatch>();
  const auto act = [watch, shared] {
    const auto request = [&](const char* what) { watch->request(what, [&] { ++shared->reads; }); };
    watch->await_first_slice();
    request("write one file");
    request("write another file");
    watch->end_slices(10);
    watch->end_slice();
    shared->is_abandoned.get_future().wait();
    try {
      request("write a third file");
      shared->later.set_value("");
    } catch (const Error& e) {
      shared->later.set_value(e.what());
    }
  };
  const std::string error = "cannot write another file: the disk has not answered for 3600s (checkpoint.timeout)";
  CHECK_THROWS_WITH(DiskWatch::run(watch, limit, act), error);
  shared->is_abandoned.set_value();
  CHECK(shared->later.get_future().get() == error);
  CHECK(shared->reads == 2);
}
