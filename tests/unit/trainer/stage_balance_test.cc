// A pipeline whose ranks say how long their stages take: its layers move, and it learns as without that.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "worker/parallel/forms/pipeline/stage.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr int steps = 90;
constexpr double slowness = 6;  // of the second stage's slow rank

struct Run {
  std::vector<double> losses;
  std::vector<std::string> moves;
  double evaluated = 0;  // the loss of the averages
};

// Two stages of three layers each, at first. Each layer takes a millisecond, and longer at the last rank: the times are
// told, not measured, so that what else the machine does has no say in which layers move.
Run run(const TrainingJob& job, int ranks) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int r = 0; r < ranks; ++r) {
    auto& state = replicas.emplace_back(std::make_unique<Replica>(job))->state;
    state.layer_seconds.assign(pipeline::layers_of(*state.model).size(), 1e-3);
  }
  Run result;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const trainer::TrainSession* own = nullptr;
    const auto told = [&](const trainer::StepTimes&) {
      const auto layers = own->forms().pipelined->pipeline().parameters().size() / 2;  // weight and bias
      return trainer::StepTimes{.backward = trainer::Seconds((group.rank() + 1 == group.size() ? slowness : 1) * 1e-3 *
                                                             static_cast<double>(layers))};
    };
    const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group, told);
    own = session.get();
    for (int step = 0; step < steps; ++step) {
      auto taken = session->step(false);
      session->balance(taken);
      if (group.rank() > 0) continue;
      result.losses.push_back(taken.loss);
      if (!taken.balance.empty()) result.moves.push_back(taken.balance);
    }
    const double evaluated = session->evaluate().loss;
    if (group.rank() == 0) result.evaluated = evaluated;
  });
  return result;
}

std::string job_text(const std::string& train, const std::string& parallel) {
  return "[model]\nname = mlp\nhidden = 8 8 8 8 8\n[data]\nname = random\nsamples = 80\ntest_samples = 8\n"
         "[optim]\nname = adamw\nlr = 0.01\n[train]\nepochs = 100\nglobal_batch_size = 8\ncheck_replicas = true\n" +
         train + "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = fc4\n" + parallel;
}

void check_moves(int ranks, const std::string& train, const std::string& parallel) {
  const Run fixed = run(TrainingJob(job_text(train, parallel)), ranks);
  const Run balanced = run(TrainingJob(job_text(train, parallel + "balance = true\n")), ranks);
  CHECK(fixed.moves.empty());
  REQUIRE(balanced.moves.size() == 2);
  CHECK_THAT(balanced.moves[0],
             Catch::Contains("layer fc4 moves from stage 1 to stage 0: stages compute 3.0, 18.0 ms a step: the slowest "
                             "would take 12.0 ms in place of 18.0 ms"));
  CHECK_THAT(balanced.moves[1],
             Catch::Contains("layer fc5 moves from stage 1 to stage 0: stages compute 4.0, 12.0 ms"));
  REQUIRE(fixed.losses.size() == steps);
  for (std::size_t i = 0; i < fixed.losses.size(); ++i)
    CHECK(std::abs(balanced.losses[i] - fixed.losses[i]) <= 1e-6 * fixed.losses[i]);
  CHECK(std::abs(balanced.evaluated - fixed.evaluated) <= 1e-6 * fixed.evaluated);
}

}  // namespace

TEST_CASE("layers move from a slow stage with their optimizer state and averages") {
  check_moves(2, "ema = 0.9\n", "");
}

TEST_CASE("a stage is as slow as the slowest of its data ranks, and its layers move at all of them") {
  check_moves(4, "ema = 0.9\n", "");
}

TEST_CASE("divided optimizer state, gradients and parameters move with their layers") {
  for (const std::string zero : {"1", "2", "3"}) {
    INFO("parallel.zero = " << zero);
    check_moves(4, "ema = 0.9\n", "zero = " + zero + "\n");
  }
}
