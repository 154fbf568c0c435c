// optim.skip_outliers: the steps that are skipped, at all ranks, and the state that a run needs to resume.
#include <limits>

#include "worker/autograd/ops/elementwise.h"
#include "worker/optim/outlier_filter.h"
#include "worker/trainer/session/replicas.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/records.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The gradient of one call is a thousand times as large.
class PlantedOutlier : public tasks::Task {
 public:
  PlantedOutlier(const tasks::Task& task, int call) : task_(task), call_(call) {}
  std::int64_t outputs() const override { return task_.outputs(); }
  tasks::WeightedLoss loss(const tasks::Forward& model, const data::Batch& batch) const override {
    auto result = task_.loss(model, batch);
    if (calls_++ == call_) result.loss = mul(result.loss, 1000);
    return result;
  }

 private:
  const tasks::Task& task_;
  const int call_;
  mutable int calls_ = 0;
};

struct Step {
  bool skipped;
  std::int64_t optimizer_steps;
  std::string digest;
  friend bool operator==(const Step&, const Step&) = default;
};

// Returns 20 steps of two ranks; at rank 1 the gradient of the 16th is an outlier.
std::vector<std::vector<Step>> steps_with_an_outlier(const std::string& more) {
  const TrainingJob job(
      "[model]\nname = linear\n[data]\nname = random\nsamples = 400\ntest_samples = 10\n[train]\nbatch_size = 8\n" +
      more);
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int rank = 0; rank < 2; ++rank) replicas.push_back(std::make_unique<Replica>(job));
  std::vector<std::vector<Step>> steps(2);
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    Replica& replica = *replicas[rank];
    const PlantedOutlier task(*replica.task, rank == 1 ? 15 : -1);
    trainer::TrainSession session({.config = replica.config, .datasets = replica.datasets, .task = task}, replica.state,
                                  group);
    for (int i = 0; i < 20; ++i) {
      const auto result = session.step(false);
      const auto visit = [&](const auto& visitor) { session.visit_parameters(visitor); };
      steps[rank].push_back({result.skipped, replica.state.optimizer->step_count(), trainer::parameter_digest(visit)});
    }
  });
  return steps;
}

}  // namespace

TEST_CASE("a norm far above the median of those before is an outlier") {
  optim::OutlierFilter filter(3);
  CHECK(!filter.note(1000));  // there is nothing to compare with
  for (int i = 1; i < 10; ++i) CHECK(!filter.note(i));
  CHECK(filter.median() == 5.5);  // the median of 1 to 9 and 1000
  CHECK(!filter.note(16.5));
  CHECK(filter.note(18.1));
  CHECK(filter.note(std::numeric_limits<double>::quiet_NaN()));
  CHECK(filter.note(std::numeric_limits<double>::infinity()));
  CHECK(filter.norms().size() == 12);
}

TEST_CASE("the median is of the last 100 norms, and norms that stay large are accepted") {
  optim::OutlierFilter filter(3);
  for (int i = 0; i < 150; ++i) filter.note(1);
  CHECK(filter.norms().size() == 100);
  int outliers = 0;
  for (int i = 0; i < 100; ++i) outliers += filter.note(50) ? 1 : 0;
  CHECK(outliers == 50);  // with a half of them the median is 25.5
  CHECK(filter.median() == 50);
}

TEST_CASE("a step with an outlier, or an overflow, at one rank is skipped at all ranks") {
  const std::string outliers = "[optim]\nskip_outliers = 20\n[parallel]\n", now_and_then = "strategy = local_sgd\n";
  for (const std::string& more :
       {outliers + "zero = 0\n", outliers + "zero = 1\n", outliers + "zero = 2\n", outliers + "zero = 3\n",
        outliers + now_and_then, "precision = fp16\nloss_scale = 1024\n[parallel]\n" + now_and_then}) {
    INFO(more);
    const auto steps = steps_with_an_outlier(more);
    CHECK(steps[0] == steps[1]);
    for (std::size_t i = 0; i < 20; ++i) CHECK(steps[0][i].skipped == (i == 15));
    CHECK(steps[0][15].digest == steps[0][14].digest);
    CHECK(steps[0][16].digest != steps[0][15].digest);
    CHECK(steps[0].back().optimizer_steps == 19);
  }
  const auto taken = steps_with_an_outlier("");
  CHECK(taken[0][15].digest != taken[0][14].digest);
}

TEST_CASE("a run that skips outliers has the same bits when it stops and goes on") {
  // Batches of one sample differ so much that steps are skipped with a factor this small.
  const auto run = [](const TempDir& dir, int steps) {
    return TrainingJob(
               "[model]\nname = linear\n[data]\nname = random\nsamples = 100\ntest_samples = 10\n"
               "[train]\nbatch_size = 1\nmax_steps = " +
               std::to_string(steps) + "\n[optim]\nskip_outliers = 1.2\n[checkpoint]\ndir = " +
               (dir / "checkpoints").string() + "\n[metrics]\nfile = " + (dir / "metrics").string() + "\n")
        .run(1)[0]
        .parameter_digest;
  };
  const TempDir whole, stopped;
  const auto expected = run(whole, 60);
  for (const int steps : {5, 23, 60}) CHECK((run(stopped, steps) == expected) == (steps == 60));
  const auto records = step_records(whole / "metrics");
  const auto skipped = records.back().at("skipped_steps").as_int64();
  CHECK(skipped > 3);
  CHECK(skipped < 50);
  CHECK(step_records(stopped / "metrics").back().at("skipped_steps").as_int64() == skipped);
}
