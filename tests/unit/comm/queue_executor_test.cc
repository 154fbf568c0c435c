#include <atomic>
#include <csignal>
#include <latch>
#include <thread>
#include <unistd.h>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/memory_store.h"
#include "ddprun/worker/comm/execution/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Carries a collective out by what it is told to.
class ScriptedTransport : public BasicTransport {
 public:
  using Script = std::function<void(std::uint64_t sequence)>;
  ScriptedTransport(int lanes, Script script) : concurrency_(lanes), script_(std::move(script)) {}

  std::string_view backend() const override { return "scripted"; }
  void connect(Store&, const std::string&, Deadline) override {}
  int lanes() const override { return concurrency_; }
  void execute(const Collective& collective) override { script_(collective.sequence); }
  std::unique_ptr<Transfer> start(const Operation&, Span) override {
    throw Error(Errc::internal, "there are no transfers here");
  }
  void interrupt() noexcept override {}

 private:
  const int concurrency_;
  const Script script_;
};

std::unique_ptr<ProcessGroup> group_over(int lanes, ScriptedTransport::Script script) {
  const auto store = std::make_shared<MemoryStore>();
  return make_transport_group(std::make_shared<ScriptedTransport>(lanes, std::move(script)),
                              {.connect_store = [store] { return store; }, .timeout = 10s, .freeze_bound = 0ms},
                              {"scripted"});
}

// Whether ever more than so many collectives are carried out at once.
class UnderWay {
 public:
  explicit UnderWay(int most) : most_(most) {}
  void enter_and_leave() {
    if (++now_ > most_) too_many_ = true;
    std::this_thread::yield();
    --now_;
  }
  bool too_many() const { return too_many_; }

 private:
  const int most_;
  std::atomic<int> now_ = 0;
  std::atomic<bool> too_many_ = false;
};

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
  UnderWay under_way(lanes);
  const auto group = group_over(lanes, [&](std::uint64_t) { under_way.enter_and_leave(); });
  std::vector<WorkPtr> works;
  for (int i = 0; i < count; ++i) works.push_back(group->barrier());
  for (const auto& work : works) work->wait();
  CHECK_FALSE(under_way.too_many());
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

TEST_CASE("a blocking call that finds a lane free is carried out by its caller") {
  std::vector<std::thread::id> at_work;
  const auto group = group_over(1, [&](std::uint64_t) { at_work.push_back(std::this_thread::get_id()); });
  group->barrier({.blocking = true});
  group->barrier()->wait();
  group->barrier({.blocking = true});
  const auto own = std::this_thread::get_id();
  REQUIRE(at_work.size() == 3);
  CHECK(at_work[0] == own);
  CHECK(at_work[1] != own);
  CHECK(at_work[2] == own);
}

TEST_CASE("callers of blocking calls count as lanes") {
  constexpr int lanes = 2, threads = 4, count = 50;
  UnderWay under_way(lanes);
  const auto group = group_over(lanes, [&](std::uint64_t) { under_way.enter_and_leave(); });
  std::vector<std::thread> callers;
  for (int thread = 0; thread < threads; ++thread) {
    callers.emplace_back([&, thread] {
      for (int i = 0; i < count; ++i) group->barrier({.blocking = thread % 2 == 0})->wait();
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK_FALSE(under_way.too_many());
}

TEST_CASE("what is queued begins when the caller of a blocking call is done, not before") {
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

TEST_CASE("a broken pipe ends no program whose own thread carries a blocking call out") {
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
