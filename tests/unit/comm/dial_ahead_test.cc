#include "worker/comm/bootstrap/dial_ahead.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "common/error.h"
#include "rendezvous/store/memory_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

TEST_CASE("connections that are dialled ahead are each taken once") {
  std::atomic<int> dialled = 0;
  DialAhead ahead([&](const std::stop_token&) {
    ++dialled;
    return std::make_shared<MemoryStore>();
  });
  CHECK(ahead.take() == nullptr);
  ahead.begin(2);
  const auto one = ahead.take(), other = ahead.take();
  CHECK((one && other && one != other));
  CHECK(ahead.take() == nullptr);
  CHECK(dialled == 2);
}

TEST_CASE("a dialling that fails leaves no connection") {
  DialAhead ahead([](const std::stop_token&) -> std::shared_ptr<Store> { throw Error(Errc::unreachable, "refused"); });
  ahead.begin(1);
  CHECK(ahead.take() == nullptr);
}

TEST_CASE("dialling that nobody waits for ends, with its object or when another begins") {
  std::atomic<int> stopped = 0;
  {
    DialAhead ahead([&](const std::stop_token& stop) -> std::shared_ptr<Store> {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, stop, [] { return false; });
      ++stopped;
      throw Error(Errc::aborted, "stopped");
    });
    ahead.begin(2);
    ahead.begin(1);
    CHECK(stopped == 2);
  }
  CHECK(stopped == 3);
}

TEST_CASE("a connection that was taken outlives the stop of the others") {
  std::stop_token given;
  std::shared_ptr<Store> taken;
  {
    DialAhead ahead([&](const std::stop_token& stop) {
      given = stop;
      return std::make_shared<MemoryStore>();
    });
    ahead.begin(1);
    taken = ahead.take();
  }
  CHECK(taken);
  CHECK_FALSE(given.stop_requested());
}
