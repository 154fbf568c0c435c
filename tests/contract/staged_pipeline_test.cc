// The division of operations by a staged group, and their concurrency: over a group of the host whose operations end
// when the test ends them.
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "worker/comm/backends/staged/staged_call.h"
#include "worker/comm/backends/staged/staged_group.h"
#include "worker/comm/operations/checked_call.h"
#include "worker/comm/operations/completion.h"
#include "tests/support/catch.h"
#include "tests/support/fake_nccl/fake_nccl.h"

using namespace ddprun;
using namespace ddprun::comm;
namespace fake_nccl = ddprun::testing::fake_nccl;

namespace {

constexpr std::size_t elements = 1024;  // elements of a piece
constexpr std::size_t piece_bytes = elements * sizeof(float);

// The group of rank 0 of two. Its operations double their output.
class ManualGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string_view backend() const override { return "manual"; }
  bool reduces_elements_alike(const Call&) const override { return true; }
  std::optional<Error> failure() const override {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = Error(Errc::aborted, reason);
    for (auto& each : started_) each.work->fail(*cause_);
  }
  WorkPtr start(const Call& call) override {
    const std::lock_guard lock(mutex_);
    if (cause_) return failed_work(*cause_);
    auto work = std::make_shared<Completion>(call.operation);
    started_.push_back({call, work});
    return work;
  }

  std::size_t started() const {
    const std::lock_guard lock(mutex_);
    return started_.size();
  }
  void await_started(std::size_t count) const {
    while (started() < count) std::this_thread::yield();
  }
  Call call(std::size_t number) const {
    const std::lock_guard lock(mutex_);
    return started_[number].call;
  }
  void finish(std::size_t number) {
    const std::lock_guard lock(mutex_);
    auto& [call, work] = started_[number];
    double_output(call);
    work->complete();
  }
  // Ends the operation successfully, and all others by a failure of the group, at the same moment.
  void finish_and_abort(std::size_t number, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    cause_ = Error(Errc::aborted, reason);
    double_output(started_[number].call);
    started_[number].work->complete();
    for (auto& each : started_) each.work->fail(*cause_);
  }

 private:
  struct Started {
    Call call;
    std::shared_ptr<Completion> work;
  };
  static void double_output(const Call& call) {
    auto* const values = static_cast<float*>(call.output.data);
    for (std::size_t i = 0; i < call.output.count; ++i) values[i] *= 2;
  }

  mutable std::mutex mutex_;
  std::deque<Started> started_;
  std::optional<Error> cause_;
};

struct Staged {
  ManualGroup* host = new ManualGroup;
  std::unique_ptr<ProcessGroup> group =
      make_staged_group(std::unique_ptr<ProcessGroup>(host),
                        {.device = 0, .timeout = std::chrono::minutes(5), .piece_bytes = piece_bytes});
};

// Memory that the fake treats as a device's.
class Values {
 public:
  Values(std::size_t count, float value) : values_(count, value) {}
  Span span() { return span_of(values_); }
  float at(std::size_t i) const { return values_[i]; }

 private:
  std::vector<float> values_;
};

// Returns the error; empty after success.
std::string error_of(Work& work) {
  try {
    work.wait();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("four pieces are in progress, and one is copied back while the next are in the group") {
  Staged staged;
  Values values(6 * elements, 1);
  const auto work = staged.group->allreduce(values.span());
  staged.host->await_started(4);
  CHECK(staged.host->call(0).operation.layout == 6 * elements);
  staged.host->finish(0);
  staged.host->await_started(5);  // in the memory of the first: copied back while three others are in the group
  CHECK(values.at(elements - 1) == 2);
  CHECK(values.at(elements) == 1);
  CHECK_FALSE(work->done());
  for (std::size_t i = 1; i < 6; ++i) {
    staged.host->await_started(i + 1);
    staged.host->finish(i);
  }
  work->wait();
  for (std::size_t i = 0; i < 6 * elements; ++i) REQUIRE(values.at(i) == 2);
}

TEST_CASE("the next collectives begin while the pieces of one are on their way") {
  Staged staged;
  Values first(elements / 2, 1), second(elements + 1, 3), third(elements, 5);
  const WorkPtr works[] = {staged.group->allreduce(first.span()), staged.group->allreduce(second.span()),
                           staged.group->allreduce(third.span())};
  staged.host->await_started(4);  // pieces: one, two, one
  CHECK(staged.host->call(2).operation.count == 1);
  for (std::size_t each = 4; each-- > 0;) staged.host->finish(each);
  for (const auto& work : works) work->wait();
  CHECK(first.at(0) == 2);
  CHECK(second.at(elements) == 6);
  CHECK(third.at(0) == 10);
}

TEST_CASE("messages do not wait for collectives, and sends begin in the order of their calls") {
  Staged staged;
  Values values(elements, 1), sent(10, 2), later(5, 3), received(7, 4);
  const auto sum = staged.group->allreduce(values.span());
  staged.host->await_started(1);
  const auto receive = staged.group->recv(received.span(), 1, 9);
  CHECK(staged.host->started() == 2);  // at once, since the calls of receives have an order, too
  const auto send = staged.group->send(sent.span(), 1, 8), next = staged.group->send(later.span(), 1, 8);
  staged.host->await_started(4);
  CHECK(staged.host->call(2).operation.count == 10);
  CHECK(staged.host->call(3).operation.count == 5);
  for (std::size_t each = 1; each < 4; ++each) staged.host->finish(each);
  for (const auto& work : {receive, send, next}) work->wait();
  CHECK_FALSE(sum->done());
  staged.host->finish(0);
  sum->wait();
}

TEST_CASE("an abort in the middle of a pipeline ends it, without a copy to the device afterwards") {
  const int before = fake_nccl::pinned_pieces();
  {
    Staged staged;
    Values values(20 * elements, 1), next(3, 1), received(3, 1);
    const WorkPtr works[] = {staged.group->allreduce(values.span()), staged.group->allreduce(next.span()),
                             staged.group->recv(received.span(), 1, 0)};
    staged.host->await_started(5);
    CHECK(fake_nccl::pinned_pieces() > before);
    staged.group->abort("the test says so");
    for (const auto& work : works) {
      CHECK_THROWS_WITH(work->wait(), "the test says so");
    }
    CHECK(staged.host->started() == 5);
    CHECK_THROWS_WITH(staged.group->allreduce(next.span())->wait(), "the test says so");
    CHECK(values.at(0) == 1);
  }
  CHECK(fake_nccl::pinned_pieces() == before);
}

TEST_CASE("a staged group that ends with operations unfinished breaks the host's, else not") {
  const auto cause_after = [](bool finish) {
    ManualGroup host;
    struct Forwarding final : ProcessGroup {
      explicit Forwarding(ManualGroup& to) : group(to) {}
      int rank() const override { return 0; }
      int size() const override { return 2; }
      std::string_view backend() const override { return "manual"; }
      std::optional<Error> failure() const override { return group.failure(); }
      void abort(const std::string& reason) override { group.abort(reason); }
      WorkPtr start(const Call& call) override { return group.start(call); }
      ManualGroup& group;
    };
    auto staged = make_staged_group(std::make_unique<Forwarding>(host), {.timeout = std::chrono::minutes(5)});
    Values values(5, 1);
    const auto work = staged->allreduce(values.span());
    host.await_started(1);
    if (finish) {
      host.finish(0);
      work->wait();
    }
    staged.reset();
    return host.failure();
  };
  for (int repeat = 0; repeat < 50; ++repeat) REQUIRE_FALSE(cause_after(true));
  CHECK(cause_after(false)->code() == Errc::aborted);
}

TEST_CASE("an operation is divided where each piece gives the bits of the whole") {
  std::vector<float> values(3 * 1000), part(1000);
  const RankInfo middle{1, 3};
  const auto pieces = [&](const Call& call, bool alike) { return divide(call, 3, 4000, alike).pieces; };
  const auto sum = checked_allreduce(span_of(values), span_of(values), ReduceOp::sum, {});
  CHECK(pieces(sum, false) == 1);
  CHECK(pieces(sum, true) == 4);  // pieces of 960 elements, whole cache lines
  CHECK(divide(sum, 3, 4000, true).elements == 960);
  CHECK(pieces(checked_broadcast(span_of(values), 0, middle, {}), false) == 4);
  CHECK(pieces(checked_allgather(span_of(part), span_of(values), nullptr, middle, {}), false) ==
        4);  // 320 elements of each rank
  const Counts counts{500, 1000, 1500};
  CHECK(pieces(checked_allgather(span_of(part), span_of(values), &counts, middle, {}), true) == 1);
  CHECK(pieces(checked_allreduce({span_of(values)}, ReduceOp::sum, {}), true) == 1);
  CHECK(divide(checked_allreduce(span_of(part), span_of(part), ReduceOp::sum, {}), 3, 1, true).pieces == 1000);
}

TEST_CASE("a piece of an operation in parts is staged as a span of each part") {
  std::vector<std::int32_t> whole(3 * 10), part(10);
  std::byte staging[4096];
  const RankInfo middle{1, 3};
  const auto scatter = checked_reduce_scatter(span_of(whole), span_of(part), nullptr, ReduceOp::sum, middle, {});
  const Division division{3, 4};
  const auto last = plan_staged_call(scatter, division, 2, middle, staging);
  CHECK(last.call.operation.count == 2);
  CHECK(last.call.operation.layout == 10);
  CHECK(last.call.input.count == 6);
  CHECK(last.written == std::vector<StagedSpan>{{part.data() + 8, 0, 8}});
  CHECK(last.read ==
        std::vector<StagedSpan>{{whole.data() + 8, 64, 8}, {whole.data() + 18, 72, 8}, {whole.data() + 28, 80, 8}});
  CHECK(last.call.input.data == staging + 64);

  const Span own{whole.data() + 10, 10, DType::int32};  // in place
  const auto gather = checked_allgather(own, span_of(whole), nullptr, middle, {});
  const auto first = plan_staged_call(gather, division, 0, middle, staging);
  CHECK(first.call.input.data == staging + 16);
  CHECK(first.read == std::vector<StagedSpan>{{whole.data() + 10, 16, 16}});
  CHECK(first.written ==
        std::vector<StagedSpan>{{whole.data(), 0, 16}, {whole.data() + 10, 16, 16}, {whole.data() + 20, 32, 16}});
}

TEST_CASE("what the group has finished before it fails is completed") {
  Staged staged;
  Values values(elements, 1), next(elements, 1), received(3, 2);
  const auto done = GENERATE(std::size_t{0}, std::size_t{2});  // the first collective, or the message
  CAPTURE(done);
  const WorkPtr sums[] = {staged.group->allreduce(values.span()), staged.group->allreduce(next.span())};
  staged.host->await_started(2);
  const auto message = staged.group->recv(received.span(), 1, 0);
  staged.host->finish_and_abort(done, "the test says so");
  for (const auto& work : {sums[0], sums[1], message}) {
    const bool is_done = work == (done == 0 ? sums[0] : message);
    CHECK(error_of(*work) == (is_done ? "" : "the test says so"));
  }
  CHECK(values.at(0) == (done == 0 ? 2 : 1));
  CHECK(next.at(0) == 1);
}

TEST_CASE("what a failed group has finished is not completed if the device does not take it") {
  Staged staged;
  Values values(elements, 1), received(3, 2);
  const auto sum = staged.group->allreduce(values.span());
  const auto message = staged.group->recv(received.span(), 1, 0);
  staged.host->await_started(2);
  fake_nccl::break_copies(4);  // each of the two may be tried before the failure is seen, too
  for (std::size_t each : {0U, 1U}) staged.host->finish(each);
  staged.host->abort("the test says so");
  CHECK_FALSE(error_of(*sum).empty());
  CHECK_FALSE(error_of(*message).empty());
  CHECK(values.at(0) == 1);
  fake_nccl::break_copies(0);
}
