#include "worker/recovery/plan_watch.h"

#include <future>
#include <optional>
#include <stop_token>
#include <thread>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/recovery/served_store.h"

using namespace ddprun;
using ddprun::testing::ServedStore;
using namespace std::chrono_literals;

TEST_CASE("a watch says once that the key was set, that the time is up or that the store has failed") {
  ServedStore store;
  const auto client = store.connect();
  const auto connect = [&store](Deadline, const std::stop_token& stop) { return store.connect(stop); };
  std::promise<std::string> said;
  // A second call throws.
  const auto on_end = [&](bool set, const std::string& why) { said.set_value((set ? "set: " : "not set: ") + why); };
  SECTION("the key was set before") {
    client->set("key", "", Deadline::in(10s));
    const PlanWatch watch(connect, "key", Deadline::in(60s), "late", on_end);
    CHECK(said.get_future().get() == "set: the members have changed meanwhile");
  }
  SECTION("the key is set later") {
    const PlanWatch watch(connect, "key", Deadline::in(60s), "late", on_end);
    client->set("key", "", Deadline::in(10s));
    CHECK(said.get_future().get() == "set: the members have changed meanwhile");
  }
  SECTION("the deadline") {
    const PlanWatch watch(connect, "key", Deadline::in(0s), "late", on_end);
    CHECK(said.get_future().get() == "not set: late");
  }
  SECTION("the deadline, while it connects") {
    const PlanWatch watch(
        [](Deadline deadline, const std::stop_token&) -> std::shared_ptr<Store> {
          while (!deadline.expired()) std::this_thread::yield();
          throw Error(Errc::timeout, "no connection");
        },
        "key", Deadline::in(10ms), "late", on_end);
    CHECK(said.get_future().get() == "not set: late");
  }
  SECTION("the store") {
    std::promise<void> connected;
    const PlanWatch watch(
        [&](Deadline, const std::stop_token& stop) {
          auto own = store.connect(stop);
          connected.set_value();
          return own;
        },
        "key", Deadline::in(60s), "late", on_end);
    connected.get_future().get();
    store.server.reset();
    CHECK_THAT(said.get_future().get(), Catch::StartsWith("not set: cannot wait for a newer generation: "));
  }
}

TEST_CASE("a watch that ends before says nothing") {
  const ServedStore store;
  bool called = false;
  {
    const auto connect = [&](Deadline, const std::stop_token& stop) { return store.connect(stop); };
    const PlanWatch watch(connect, "key", Deadline::in(60s), "late", [&](bool, const auto&) { called = true; });
  }
  CHECK_FALSE(called);
}
