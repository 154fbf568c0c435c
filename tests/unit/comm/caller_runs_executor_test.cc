// Which steps a collective takes where any thread may carry it out.
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/memory_store.h"
#include "ddprun/worker/comm/execution/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Notes what it is asked to do, and in which thread.
class NotingTransport : public BasicTransport {
 public:
  std::string_view backend() const override { return "noting"; }
  void connect(Store&, const std::string&, Deadline) override {}
  bool thread_agnostic() const override { return true; }
  bool announce(const Collective& collective) noexcept override { return note("announce", collective); }
  void execute(const Collective& collective) override { note("carry out", collective); }
  std::unique_ptr<Transfer> start(const Operation&, Span) override {
    throw Error(Errc::internal, "there are no transfers here");
  }
  void interrupt() noexcept override {}

  std::vector<std::string> notes;
  std::thread::id thread;

 private:
  bool note(const std::string& step, const Collective& collective) {
    notes.push_back(step + " " + std::to_string(collective.sequence));
    thread = std::this_thread::get_id();
    return true;
  }
};

}  // namespace

// It comes before the operation_log knows of the collective: nobody could explain its failure.
static_assert(noexcept(std::declval<Transport&>().announce(std::declval<const Collective&>())));

TEST_CASE("a blocking collective is announced before it is carried out, unless it is made of others") {
  const auto transport = std::make_shared<NotingTransport>();
  const auto store = std::make_shared<MemoryStore>();
  const auto group = make_transport_group(
      transport, {.connect_store = [store] { return store; }, .timeout = 10s, .freeze_bound = 0ms}, {"scripted"});
  std::vector<float> values(4), none;
  const OpOptions blocking{.timeout = {}, .blocking = true};
  group->allreduce(span_of(values), {}, blocking);
  group->allreduce(span_of(values), Reduction::premultiplied_sum(2), blocking);
  group->allreduce(span_of(none), {}, blocking);
  group->barrier(blocking);
  CHECK(transport->notes ==
        std::vector<std::string>{"announce 0", "carry out 0", "carry out 1", "announce 3", "carry out 3"});
  CHECK(transport->thread == std::this_thread::get_id());
}

namespace {

// Takes one collective in two steps, whose second one waits for the interruption.
class InterruptedTransport : public NotingTransport {
 public:
  explicit InterruptedTransport(std::function<void()> as_it_is_interrupted)
      : as_it_is_interrupted_(std::move(as_it_is_interrupted)) {}

  bool post(const Collective& collective) override { return collective.sequence == 0; }
  bool finish_posted(const Collective&, const Deadline& deadline) override {
    if (deadline.expired()) return false;
    interrupted_.wait(false);
    throw std::runtime_error("interrupted");
  }
  void interrupt() noexcept override {
    interrupted_ = true;
    interrupted_.notify_all();
    as_it_is_interrupted_();
  }

 private:
  const std::function<void()> as_it_is_interrupted_;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

// What was posted may still be under way for the transport: shared memory would wait for its end.
TEST_CASE("what is queued behind a posted collective that fails is not begun") {
  std::vector<WorkPtr> works;
  std::vector<Errc> ends;
  const auto await_ends = [&] {  // before the group drops what nobody has begun
    for (const auto& work : works) {
      try {
        work->wait();
      } catch (const Error& error) {
        ends.push_back(error.code());
      }
    }
  };
  const auto transport = std::make_shared<InterruptedTransport>(await_ends);
  const auto store = std::make_shared<MemoryStore>();
  const auto group = make_transport_group(
      transport, {.connect_store = [store] { return store; }, .timeout = 10s, .freeze_bound = 0ms}, {"interrupted"});
  works = {group->barrier(), group->barrier()};
  group->abort("the test says so");
  CHECK(ends == std::vector{Errc::aborted, Errc::aborted});
  CHECK(transport->notes.empty());
}
