#include <atomic>
#include <latch>
#include <thread>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/memory_store.h"
#include "ddprun/worker/comm/transport/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Carries a collective out by what it is told to.
class ScriptedTransport : public Transport {
 public:
  using Script = std::function<void(std::uint64_t sequence)>;
  ScriptedTransport(int lanes, Script script) : lanes_(lanes), script_(std::move(script)) {}

  std::string_view backend() const override { return "scripted"; }
  void connect(Store&, const std::string&, Deadline) override {}
  int lanes() const override { return lanes_; }
  void carry_out(const Collective& collective) override { script_(collective.sequence); }
  std::unique_ptr<Transfer> start(const Operation&, Span) override {
    throw Error(Errc::internal, "there are no transfers here");
  }
  void interrupt() noexcept override {}

 private:
  const int lanes_;
  const Script script_;
};

std::unique_ptr<ProcessGroup> group_over(int lanes, ScriptedTransport::Script script) {
  const auto store = std::make_shared<MemoryStore>();
  return make_transport_group(std::make_shared<ScriptedTransport>(lanes, std::move(script)),
                              {.connect_store = [store] { return store; }, .timeout = 10s, .freeze_bound = 0ms});
}

}  // namespace

TEST_CASE("as many collectives as there are lanes are under way at once") {
  constexpr int lanes = 3;
  std::latch all_begun(lanes);
  const auto group = group_over(lanes, [&](std::uint64_t) { all_begun.arrive_and_wait(); });
  std::vector<WorkPtr> works;
  for (int i = 0; i < lanes; ++i) works.push_back(group->barrier());
  for (const auto& work : works) work->wait();
}

TEST_CASE("a collective may be done before an earlier one") {
  std::latch second_done(1);
  const auto group = group_over(2, [&](std::uint64_t sequence) {
    if (sequence == 0) second_done.wait();
  });
  const auto first = group->barrier();
  group->barrier()->wait();
  CHECK_FALSE(first->done());
  second_done.count_down();
  first->wait();
}

TEST_CASE("no more collectives are under way than there are lanes") {
  constexpr int lanes = 2, count = 50;
  std::atomic<int> under_way = 0;
  std::atomic<bool> too_many = false;
  const auto group = group_over(lanes, [&](std::uint64_t) {
    if (++under_way > lanes) too_many = true;
    std::this_thread::yield();
    --under_way;
  });
  std::vector<WorkPtr> works;
  for (int i = 0; i < count; ++i) works.push_back(group->barrier());
  for (const auto& work : works) work->wait();
  CHECK_FALSE(too_many);
}

TEST_CASE("what is queued ends at an abort, and what is under way with its transport") {
  std::latch begun(1), interrupted(1);
  const auto group = group_over(1, [&](std::uint64_t) {
    begun.count_down();
    interrupted.wait();
    throw std::runtime_error("interrupted");
  });
  const auto first = group->barrier(), second = group->barrier();
  begun.wait();
  group->abort("the test says so");
  const auto code = [](Work& work) {
    try {
      work.wait();
    } catch (const Error& error) {
      return error.code();
    }
    return Errc::internal;
  };
  CHECK(code(*second) == Errc::aborted);
  CHECK_FALSE(first->done());
  interrupted.count_down();
  CHECK(code(*first) == Errc::aborted);
}
