#include "worker/trainer/report/profiling.h"

#include <set>
#include <thread>

#include "worker/autograd/function.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/output_loss.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/autograd/ops/residual.h"
#include "worker/autograd/ops/shape.h"
#include "worker/nn/models.h"
#include "worker/profiler/bottleneck.h"
#include "worker/profiler/operation_recorder.h"
#include "worker/tensor/kernels.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;
using profiler::Kind;

namespace {

const std::string job_text =
    "[model]\nname = mlp\nhidden = 32 32\n[data]\nname = random\nsamples = 400\ntest_samples = 10\nworkers = 0\n"
    "[train]\nbatch_size = 8\n";

using std::chrono::microseconds;

// Each reading is a random time, of up to 200 us, later than the last.
class TestClock {
 public:
  explicit TestClock(std::uint64_t seed) : random_(seed) {}
  void advance(microseconds by) { now_ += by; }
  profiler::OperationRecorder::Clock reader() {
    return [this] {
      advance(microseconds(random_.next_u64() % 200));
      return now_;
    };
  }

 private:
  Generator random_;
  profiler::Time now_{};
};

// Returns twice the input; takes its time in one of its passes.
Variable twice(const Variable& x, TestClock& clock, microseconds forward, microseconds backward) {
  const autograd::Function operation("twice", {x});
  clock.advance(forward);
  return operation.record(kernels::scale(x.value(), 2), {}, [&clock, backward](autograd::Backward& pass) {
    clock.advance(backward);
    pass.add(0, kernels::scale(pass.grad(), 2));
  });
}

struct Slow {
  int layer;
  bool backward;
};

// Returns the rows of a network of eight layers (a product, an activation and twice()), of which one pass is slow.
std::vector<profiler::SummaryRow> rows_of_network(Slow slow, TestClock clock = TestClock(1)) {
  constexpr microseconds delay{600};  // three times what one reading of the clock may add
  std::vector<std::string> names;
  for (int layer = 0; layer < 8; ++layer) names.push_back("layer" + std::to_string(layer));
  Tensor values = Tensor::empty({16, 16});
  values.fill(0.01F);
  const Variable weight(values, true);
  Tensor input = Tensor::empty({4, 16});
  input.fill(1);
  profiler::OperationRecorder recorder(clock.reader());
  Variable x(input);
  for (int layer = 0; layer < 8; ++layer) {
    const autograd::NameScope scope(names[static_cast<std::size_t>(layer)]);
    const bool here = layer == slow.layer;
    x = relu(linear(x, weight, Variable()));
    x = twice(x, clock, here && !slow.backward ? delay : delay * 0, here && slow.backward ? delay : delay * 0);
  }
  sum(x).backward();
  return profiler::rows_of(recorder.take());
}

// Passes calls on, and lets each take twenty times as long as the rank has computed since the last one ended: a link
// that is slow in comparison with the ranks, however slow these are.
class SlowLink : public ProcessGroup {
 public:
  explicit SlowLink(ProcessGroup& below) : below_(below) {}
  int rank() const override { return below_.rank(); }
  int size() const override { return below_.size(); }
  std::string_view backend() const override { return below_.backend(); }
  std::optional<Error> failure() const override { return below_.failure(); }
  void abort(const std::string& reason) override { below_.abort(reason); }
  WorkPtr start(const comm::Call& call) override {
    const auto now = Clock::now();
    const auto ready = now + std::max<Clock::duration>(20 * (now - idle_since_), std::chrono::milliseconds(1));
    idle_since_ = ready;
    return std::make_shared<Late>(below_.start(call), ready, idle_since_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  class Late : public Work {
   public:
    Late(WorkPtr work, Clock::time_point ready, Clock::time_point& idle_since)
        : work_(std::move(work)), ready_(ready), idle_since_(idle_since) {}
    void wait(Deadline deadline) override {
      work_->wait(deadline);
      std::this_thread::sleep_until(ready_);
      idle_since_ = std::max(idle_since_, Clock::now());
    }
    bool done() const override { return work_->done() && Clock::now() >= ready_; }
    std::optional<Error> error() const override { return work_->error(); }

   private:
    const WorkPtr work_;
    const Clock::time_point ready_;
    Clock::time_point& idle_since_;  // the group's, which outlives its operations
  };

  ProcessGroup& below_;
  Clock::time_point idle_since_ = Clock::now();  // when the last operation ended, or will end
};

profiler::Summary profile(TrainSession& session, std::int64_t steps) {
  Profiling profiling(session, 1, steps);
  while (!profiling.step_done(session.step(false))) {
  }
  return profiling.summary();
}

}  // namespace

TEST_CASE("an operation that is slow in one module and pass is named as the longest, in 20 random cases") {
  Generator generator(7);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Slow slow{.layer = static_cast<int>(generator.next_u64() % 8), .backward = generator.next_u64() % 2 == 1};
    profiler::Summary summary{.steps = 1, .rows = rows_of_network(slow, TestClock(i))};
    auto& times = summary.ranks.emplace_back().times;
    for (const auto& row : summary.rows) (row.backward ? times.backward : times.forward) += row.time;
    const std::string operation = slow.backward ? "twice backward" : "twice";
    CHECK_THAT(
        profiler::bottleneck_of(summary).sentence,
        Catch::Contains("the longest operation is " + operation + " in layer" + std::to_string(slow.layer) + " ("));
  }
}

TEST_CASE("operations are recorded with their modules, passes and floating-point operations") {
  const auto rows = rows_of_network({.layer = 0, .backward = false});
  const auto row = [&](const std::string& operation, const std::string& module, bool backward) {
    for (const auto& each : rows)
      if (each.operation == operation && each.module == module && each.backward == backward) return each;
    FAIL(operation << " in " << module);
    return profiler::SummaryRow{};
  };
  CHECK(row("linear", "layer3", false).flops == 2 * 4 * 16 * 16);
  CHECK(row("linear", "layer3", true).flops == 2 * 2 * 4 * 16 * 16);
  CHECK(row("linear", "layer0", true).flops == 2 * 4 * 16 * 16);  // the input gets no gradient
  CHECK(row("relu", "layer7", true).flops == 0);
  CHECK(row("relu", "layer7", true).calls == 1);
}

TEST_CASE("an operation of several products has the floating-point operations of all of them") {
  const auto tensor = [](const Shape& shape) { return Variable(Tensor::full(shape, 0.01), true); };
  const Variable stream = tensor({2, 3, 4}), x = tensor({2, 3, 5});
  TestClock clock(1);
  profiler::OperationRecorder recorder(clock.reader());
  const Variable wide = residual_mlp(stream, x, {tensor({5, 8}), {}, tensor({8, 4}), {}});
  const Variable added = residual_addmm(wide, {}, x, tensor({5, 4}));
  linear_cross_entropy(reshape(added, {6, 4}), tensor({7, 4}), Tensor::zeros({6}, DType::int64)).backward();
  for (const profiler::SummaryRow& row : profiler::rows_of(recorder.take())) {
    INFO(row.operation << (row.backward ? ", backward" : ", forward"));
    const int passes = row.backward ? 2 : 1;
    if (row.operation == "residual_mlp") CHECK(row.flops == passes * 2 * 6 * (5 * 8 + 8 * 4));
    if (row.operation == "residual_addmm") CHECK(row.flops == passes * 2 * 6 * 5 * 4);
    if (row.operation == "linear_cross_entropy") CHECK(row.flops == passes * 2 * 6 * 7 * 4);
  }
}

namespace {

struct StepCost {
  double bytes = 0;  // held at most, beyond the model and its gradients
  double flops = 0;
};

// One forward and backward pass of a GPT.
StepCost cost_of_step(nn::Recompute recompute) {
  Generator generator(1);
  const auto model = nn::make_model("gpt",
                                    {.input = {64},
                                     .input_dtype = DType::int64,
                                     .outputs = 50,
                                     .gpt = {.layers = 12, .heads = 4, .width = 64, .context = 64}},
                                    generator);
  model->set_recompute(recompute);
  const Variable tokens(Tensor::zeros({4, 64}, DType::int64));
  const auto pass = [&] { sum((*model)(tokens)).backward(); };
  pass();  // it allocates the gradients
  const auto before = memory_stats({}).allocated;
  reset_peak_memory({});
  TestClock clock(1);
  profiler::OperationRecorder recorder(clock.reader());
  pass();
  StepCost cost{.bytes = static_cast<double>(memory_stats({}).peak - before)};
  for (const auto& row : profiler::rows_of(recorder.take())) cost.flops += static_cast<double>(row.flops);
  return cost;
}

}  // namespace

TEST_CASE("a GPT whose blocks are computed again holds two fifths of the memory, for a third more computation") {
  const auto kept = cost_of_step(nn::Recompute::none), again = cost_of_step(nn::Recompute::blocks);
  CHECK(again.bytes < 0.4 * kept.bytes);
  CHECK(again.flops > 1.2 * kept.flops);
  CHECK(again.flops <= 4.0 / 3 * kept.flops);
}

TEST_CASE("nothing is recorded before a recorder exists and after it is destroyed") {
  const Variable x(Tensor::empty({2, 2}), true);
  TestClock clock(1);
  profiler::OperationRecorder outer(clock.reader());
  { profiler::OperationRecorder inner(clock.reader()); }
  relu(x);
  CHECK(outer.take().size() == 1);
  relu(x);
  CHECK(outer.take().size() == 1);
}

TEST_CASE("a profile has the steps, operations, transfers and memory of all ranks, and changes no bits") {
  TrainingJob job(job_text);
  std::vector<profiler::Summary> summaries(2);
  const auto loss_of = [&](bool profiled) {
    Replica first(job), second(job);
    double loss = 0;
    run_ranks(2, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      auto session = (rank == 0 ? first : second).session(group);
      if (profiled) summaries[rank] = profile(*session, 3);
      for (int step = 0; !profiled && step < 4; ++step) session->step(false);
      const double next = session->step(false).loss;
      if (rank == 0) loss = next;
    });
    return loss;
  };
  CHECK(loss_of(true) == loss_of(false));
  for (const auto& summary : summaries) {
    CHECK(summary.steps == 3);
    CHECK(summary.batch_size == 8);
    REQUIRE(summary.ranks.size() == 2);
    for (const auto& rank : summary.ranks) {
      CHECK(rank.times.forward.count() > 0);
      CHECK(rank.transfers.count() > 0);
      CHECK(rank.peak_bytes > 0);
      CHECK_FALSE(rank.host.empty());
    }
    CHECK(summary.allocations > 0);
    CHECK(summary.peak_flops > 0);
    std::set<std::string> modules;
    for (const auto& row : summary.rows) {
      modules.insert(row.module);
      CHECK(row.calls % 3 == 0);
    }
    CHECK(modules.size() > 3);
  }
  CHECK(summaries[0].ranks[1].times.data == summaries[1].ranks[1].times.data);
}

TEST_CASE("a slow link of all ranks is named communication") {
  TrainingJob job(job_text);
  Replica first(job), second(job);
  std::vector<profiler::Summary> summaries(2);
  run_ranks(2, [&](ProcessGroup& group) {
    SlowLink link(group);
    auto session = (group.rank() == 0 ? first : second).session(link);
    summaries[static_cast<std::size_t>(group.rank())] = profile(*session, 5);
  });
  for (const auto& summary : summaries) CHECK(profiler::bottleneck_of(summary).cause == profiler::Cause::communication);
}
