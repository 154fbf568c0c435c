#include "worker/comm/backends/hierarchical/rail.h"

#include <atomic>
#include <latch>
#include <stdexcept>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

class NoTransport : public Transport {
 public:
  explicit NoTransport(int concurrency) : concurrency_(concurrency) {}

  void connect(Store&, const std::string&, Deadline) override {}
  TransportTraits traits() const override { return {.backend = "none", .concurrency = concurrency_}; }
  void execute(const Collective&) override {}
  std::unique_ptr<Transfer> start_transfer(const Operation&, Span) override { return nullptr; }
  void interrupt() noexcept override { interrupted.count_down(); }

  std::latch interrupted{1};

 private:
  const int concurrency_;
};

}  // namespace

TEST_CASE("a rail begins a second task while the first waits for its peers") {
  std::latch both(2);
  Rail rail(std::make_shared<NoTransport>(4));
  for (int i = 0; i < 2; ++i) rail.post([&](Transport&) { both.arrive_and_wait(); });
  rail.await(2);
}

TEST_CASE("a rail over a transport without concurrency executes one task at a time, in order") {
  std::vector<int> order;
  Rail rail(std::make_shared<NoTransport>(1));
  for (int i = 0; i < 20; ++i) rail.post([&order, i](Transport&) { order.push_back(i); });
  rail.await(20);
  CHECK(std::ranges::is_sorted(order));
  CHECK(order.size() == 20);
}

TEST_CASE("waiting for a task of a rail waits for the tasks before it, even if it is done first") {
  std::latch second_done(1);
  std::atomic<bool> first_done = false;
  Rail rail(std::make_shared<NoTransport>(4));
  rail.post([&](Transport&) {
    second_done.wait();
    first_done = true;
  });
  const auto second = rail.post([&](Transport&) { second_done.count_down(); });
  rail.await(second);
  CHECK(first_done);
}

TEST_CASE("the first failure of a rail cancels later tasks and comes out of await()") {
  Rail rail(std::make_shared<NoTransport>(1));
  rail.post([](Transport&) { throw std::runtime_error("the first"); });
  rail.post([](Transport&) { throw std::runtime_error("the second"); });
  CHECK_THROWS_WITH(rail.await(2), "the first");
}

TEST_CASE("stopping a rail returns once no task is in progress") {
  const auto transport = std::make_shared<NoTransport>(4);
  std::atomic<int> ended = 0;
  std::latch begun(2);
  Rail rail(transport);
  for (int i = 0; i < 2; ++i) {
    rail.post([&](Transport&) {
      begun.count_down();
      transport->interrupted.wait();
      ++ended;
      throw std::runtime_error("interrupted");
    });
  }
  begun.wait();
  rail.stop();
  CHECK(ended == 2);
}
