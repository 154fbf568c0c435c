#include <atomic>
#include <csignal>
#include <latch>
#include <thread>
#include <unistd.h>

#include "common/error.h"
#include "rendezvous/store/memory_store.h"
#include "worker/comm/execution/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Executes a collective by calling a function.
class ScriptedTransport : public Transport {
 public:
  using Script = std::function<void(std::uint64_t sequence)>;
  ScriptedTransport(int concurrency, Script script) : concurrency_(concurrency), script_(std::move(script)) {}

  void connect(Store&, const std::string&, Deadline) override {}
  TransportTraits traits() const override { return {.backend = "scripted", .concurrency = concurrency_}; }
  void execute(const Collective& collective) override { script_(collective.sequence); }
  std::unique_ptr<Transfer> start_transfer(const Operation&, Span) override {
    throw Error(Errc::internal, "this transport has no transfers");
  }
  void interrupt() noexcept override {}

 private:
  const int concurrency_;
  const Script script_;
};

std::unique_ptr<ProcessGroup> group_over(int concurrency, ScriptedTransport::Script script) {
  const auto store = std::make_shared<MemoryStore>();
  return make_transport_group(
      std::make_shared<ScriptedTransport>(concurrency, std::move(script)),
      {.connect_store = [store] { return store; }, .config = {.timeout = 10s, .freeze_bound = 0ms}}, {"scripted"});
}

// Detects that more collectives than the limit are executed at once.
class ConcurrencyCheck {
 public:
  explicit ConcurrencyCheck(int limit) : limit_(limit) {}
  void enter_and_leave() {
    if (++now_ > limit_) exceeded_ = true;
    std::this_thread::yield();
    --now_;
  }
  bool exceeded() const { return exceeded_; }

 private:
  const int limit_;
  std::atomic<int> now_ = 0;
  std::atomic<bool> exceeded_ = false;
};

}  // namespace

TEST_CASE("as many collectives as the transport allows are executed at once") {
  constexpr int concurrency = 3;
  std::latch all_started(concurrency);
  const auto group = group_over(concurrency, [&](std::uint64_t) { all_started.arrive_and_wait(); });
  std::vector<WorkPtr> works;
  for (int i = 0; i < concurrency; ++i) works.push_back(group->barrier());
  for (const auto& work : works) work->wait();
}

TEST_CASE("a collective may finish before an earlier one") {
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

TEST_CASE("no more collectives are executed at once than the transport allows") {
  constexpr int concurrency = 2, count = 50;
  ConcurrencyCheck check(concurrency);
  const auto group = group_over(concurrency, [&](std::uint64_t) { check.enter_and_leave(); });
  std::vector<WorkPtr> works;
  for (int i = 0; i < count; ++i) works.push_back(group->barrier());
  for (const auto& work : works) work->wait();
  CHECK_FALSE(check.exceeded());
}

TEST_CASE("an abort ends a queued collective at once, and an executing one when its transport returns") {
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

TEST_CASE("a blocking call below the limit is executed on its caller's thread") {
  std::vector<std::thread::id> executed_on;
  const auto group = group_over(1, [&](std::uint64_t) { executed_on.push_back(std::this_thread::get_id()); });
  group->barrier({.blocking = true});
  group->barrier()->wait();
  group->barrier({.blocking = true});
  const auto own = std::this_thread::get_id();
  REQUIRE(executed_on.size() == 3);
  CHECK(executed_on[0] == own);
  CHECK(executed_on[1] != own);
  CHECK(executed_on[2] == own);
}

TEST_CASE("collectives on callers' threads count towards the limit") {
  constexpr int concurrency = 2, threads = 4, count = 50;
  ConcurrencyCheck check(concurrency);
  const auto group = group_over(concurrency, [&](std::uint64_t) { check.enter_and_leave(); });
  std::vector<std::thread> callers;
  for (int thread = 0; thread < threads; ++thread) {
    callers.emplace_back([&, thread] {
      for (int i = 0; i < count; ++i) group->barrier({.blocking = thread % 2 == 0})->wait();
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK_FALSE(check.exceeded());
}

TEST_CASE("a queued collective starts when a blocking call has finished, not before") {
  std::latch begun(1), queued(1);
  std::atomic<int> done = 0;
  std::atomic<bool> in_order = true;
  const auto group = group_over(1, [&](std::uint64_t sequence) {
    if (sequence == 0) begun.count_down(), queued.wait();
    if (static_cast<std::uint64_t>(done++) != sequence) in_order = false;
  });
  std::thread caller([&] { group->barrier({.blocking = true}); });
  begun.wait();
  const auto second = group->barrier(), third = group->barrier();
  queued.count_down();
  second->wait();
  third->wait();
  caller.join();
  CHECK(in_order);
}

TEST_CASE("SIGPIPE on the caller's thread during a blocking call does not end the program") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  const auto group = group_over(1, [&](std::uint64_t) { CHECK(::write(ends[1], "x", 1) == -1); });
  group->barrier({.blocking = true});
  ::close(ends[1]);
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  CHECK(sigismember(&blocked, SIGPIPE) == 0);
}
