// The steps by which CallerRunsExecutor executes a collective.
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/memory_store.h"
#include "worker/comm/execution/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Records its calls, and their threads.
class RecordingTransport : public Transport, public NonblockingCollectives {
 public:
  void connect(Store&, const std::string&, Deadline) override {}
  TransportTraits traits() const override { return {.backend = "recording"}; }
  NonblockingCollectives* nonblocking() override { return this; }
  void announce(const Collective& collective) noexcept override { record("announce", collective); }
  void execute(const Collective& collective) override { record("execute", collective); }
  bool start(const Collective&) override { return false; }
  bool test(const Collective&, const Deadline&) override { return false; }
  std::unique_ptr<Transfer> start_transfer(const Operation&, Span) override {
    throw Error(Errc::internal, "this transport has no transfers");
  }
  void interrupt() noexcept override {}

  std::vector<std::string> records;
  std::thread::id thread;

 private:
  void record(const std::string& step, const Collective& collective) {
    records.push_back(step + " " + std::to_string(collective.sequence));
    thread = std::this_thread::get_id();
  }
};

std::unique_ptr<ProcessGroup> group_over(const std::shared_ptr<Transport>& transport) {
  const auto store = std::make_shared<MemoryStore>();
  return make_transport_group(
      transport, {.connect_store = [store] { return store; }, .config = {.timeout = 10s, .freeze_bound = 0ms}},
      {"recording"});
}

}  // namespace

// The function is called before the operation log has the collective, so that nothing could explain its failure.
static_assert(noexcept(std::declval<NonblockingCollectives&>().announce(std::declval<const Collective&>())));

TEST_CASE("a blocking collective is announced before it is executed, unless it is composed of others") {
  const auto transport = std::make_shared<RecordingTransport>();
  const auto group = group_over(transport);
  std::vector<float> values(4), none;
  const OpOptions blocking{.timeout = {}, .blocking = true};
  group->allreduce(span_of(values), {}, blocking);
  group->allreduce(span_of(values), Reduction::premultiplied_sum(2), blocking);
  group->allreduce(span_of(none), {}, blocking);
  group->barrier(blocking);
  CHECK(transport->records ==
        std::vector<std::string>{"announce 0", "execute 0", "execute 1", "announce 3", "execute 3"});
  CHECK(transport->thread == std::this_thread::get_id());
}

namespace {

// Starts the first collective only; its test() waits for the interruption.
class InterruptedTransport : public RecordingTransport {
 public:
  explicit InterruptedTransport(std::function<void()> on_interrupt) : on_interrupt_(std::move(on_interrupt)) {}

  bool start(const Collective& collective) override { return collective.sequence == 0; }
  bool test(const Collective&, const Deadline& deadline) override {
    if (deadline.expired()) return false;
    interrupted_.wait(false);
    throw std::runtime_error("interrupted");
  }
  void interrupt() noexcept override {
    interrupted_ = true;
    interrupted_.notify_all();
    on_interrupt_();
  }

 private:
  const std::function<void()> on_interrupt_;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

// The started one may still be unfinished for the transport: over shared memory the next one would wait for its end.
TEST_CASE("a collective queued behind a started one that fails is not executed") {
  std::vector<WorkPtr> works;
  std::vector<Errc> ends;
  const auto await_ends = [&] {  // called before the group cancels the queue
    for (const auto& work : works) {
      try {
        work->wait();
      } catch (const Error& error) {
        ends.push_back(error.code());
      }
    }
  };
  const auto transport = std::make_shared<InterruptedTransport>(await_ends);
  const auto group = group_over(transport);
  works = {group->barrier(), group->barrier()};
  group->abort("the test says so");
  CHECK(ends == std::vector{Errc::aborted, Errc::aborted});
  CHECK(transport->records.empty());
}

namespace {

// Starts every collective, and finishes none.
class UnfinishedTransport : public RecordingTransport {
 public:
  bool start(const Collective&) override { return true; }
  void interrupt() noexcept override { ended_before = work->done(); }

  WorkPtr work;
  bool ended_before = false;  // the work had ended when the interruption began
};

}  // namespace

TEST_CASE("a started collective ends once the transport is interrupted, as its memory is in use until then") {
  const auto transport = std::make_shared<UnfinishedTransport>();
  const auto group = group_over(transport);
  transport->work = group->barrier();
  group->abort("the test says so");
  CHECK_FALSE(transport->ended_before);
  CHECK(transport->work->done());
  CHECK_THROWS_WITH(transport->work->wait(), Catch::Contains("the test says so"));
}

namespace {

// A transport whose ranks meet when the test allows it.
class MeetingTransport : public RecordingTransport {
 public:
  explicit MeetingTransport(bool meets) : meets_(meets) {}
  bool meet(const Collective& collective, const Deadline&) noexcept override {
    records.push_back("meet " + std::to_string(collective.sequence));
    if (meanwhile) std::exchange(meanwhile, {})();
    return meets_;
  }
  std::function<void()> meanwhile;

 private:
  const bool meets_;
};

}  // namespace

TEST_CASE("a collective is executed by its caller, though not blocking, where the other ranks come at once") {
  const auto transport = std::make_shared<MeetingTransport>(true);
  const auto group = group_over(transport);
  const auto work = group->barrier();
  CHECK(transport->records == std::vector<std::string>{"meet 0", "execute 0"});
  CHECK(transport->thread == std::this_thread::get_id());
  CHECK(work->done());
}

TEST_CASE("a collective is left to other threads where the ranks do not come, before those called meanwhile") {
  const auto transport = std::make_shared<MeetingTransport>(false);
  const auto group = group_over(transport);
  WorkPtr second;
  transport->meanwhile = [&] { std::thread([&] { second = group->barrier(); }).join(); };
  const auto first = group->barrier();
  second->wait();
  CHECK(first->done());
  std::vector<std::string> executed;
  for (const auto& record : transport->records)
    if (record.starts_with("execute")) executed.push_back(record);
  CHECK(executed == std::vector<std::string>{"execute 0", "execute 1"});
  CHECK(transport->records.front() == "meet 0");
}

namespace {

// Breaks its group while ranks meet.
class BreakingTransport : public MeetingTransport {
 public:
  BreakingTransport() : MeetingTransport(false) {}
  bool meet(const Collective&, const Deadline&) noexcept override {
    group->abort("the test says so");
    return false;
  }
  ProcessGroup* group = nullptr;
};

}  // namespace

TEST_CASE("a collective whose group breaks while the ranks meet fails, and is not executed") {
  const auto transport = std::make_shared<BreakingTransport>();
  auto group = group_over(transport);
  transport->group = group.get();
  const auto work = group->barrier();
  group.reset();
  CHECK_THROWS_WITH(work->wait(), Catch::Contains("the test says so"));
  CHECK(transport->records.empty());
}
