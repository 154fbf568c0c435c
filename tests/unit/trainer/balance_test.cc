#include <cmath>

#include "worker/trainer/session/replicas.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr int slow_rank = 1;
constexpr double slowness = 10;

struct Run {
  std::vector<double> losses;
  std::int64_t samples_of_slow_rank = 0;  // those in the last step, a full one
  int changes = 0;
};

// There are three shares of a step, whose ranks say that a sample takes a millisecond, and those of the second one that
// it takes ten. Each share is that of so many ranks.
Run run(const TrainingJob& job, int steps, int ranks_of_share = 1) {
  Run result;
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int r = 0; r < 3 * ranks_of_share; ++r) replicas.push_back(std::make_unique<Replica>(job));
  run_ranks(3 * ranks_of_share, [&](ProcessGroup& group) {
    const int share = group.rank() / ranks_of_share;
    std::int64_t samples = 8;  // of the rank's step
    const auto told = [&](const trainer::StepTimes&) {
      return trainer::StepTimes{
          .forward = trainer::Seconds((share == slow_rank ? slowness : 1) * 1e-3 * static_cast<double>(samples))};
    };
    const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group, told);
    for (int step = 0; step < steps; ++step) {
      auto taken = session->step(false);
      session->balance(taken);
      samples = taken.own_samples;
      if (group.rank() != slow_rank * ranks_of_share) continue;
      result.losses.push_back(taken.loss);
      result.changes += taken.balance.empty() ? 0 : 1;
      result.samples_of_slow_rank = taken.own_samples;
    }
  });
  return result;
}

std::string job_text(const std::string& more) {
  return "[model]\nname = mlp\nhidden = 8\n[data]\nname = random\nsamples = 100\ntest_samples = 10\n"
         "[optim]\nname = sgd\nlr = 0.05\n[train]\nepochs = 100\nglobal_batch_size = 24\ncheck_replicas = true\n" +
         more;
}

}  // namespace

TEST_CASE("a slow rank gets fewer samples, and the losses are those of an even division") {
  for (const char* more : {"", "accumulate = 2\n", "accumulate = 2\n[parallel]\nzero = 2\n"}) {
    INFO(more);
    const std::string parallel = std::string(more).find("parallel") == std::string::npos ? "[parallel]\n" : "";
    const Run even = run(TrainingJob(job_text(more)), 59);
    const Run balanced = run(TrainingJob(job_text(more + parallel + "balance = true\n")), 59);
    CHECK(even.changes == 0);
    CHECK(even.samples_of_slow_rank == 8);
    CHECK(balanced.changes >= 1);
    CHECK(balanced.samples_of_slow_rank < 6);
    REQUIRE(even.losses.size() == balanced.losses.size());
    for (std::size_t i = 0; i < even.losses.size(); ++i)
      CHECK(std::abs(even.losses[i] - balanced.losses[i]) <= (i < 10 ? 1e-6 : 1e-5) * even.losses[i]);
  }
}

TEST_CASE("ranks that have the same samples get fewer of them together if they are slow") {
  const std::string text = job_text("[parallel]\ntensor = 2\n");
  const Run even = run(TrainingJob(text), 59, 2), balanced = run(TrainingJob(text + "balance = true\n"), 59, 2);
  CHECK(even.changes == 0);
  CHECK(even.samples_of_slow_rank == 8);
  CHECK(balanced.changes >= 1);
  CHECK(balanced.samples_of_slow_rank < 6);
  REQUIRE(even.losses.size() == balanced.losses.size());
  for (std::size_t i = 0; i < even.losses.size(); ++i)
    CHECK(std::abs(even.losses[i] - balanced.losses[i]) <= (i < 10 ? 1e-6 : 1e-5) * even.losses[i]);
}
