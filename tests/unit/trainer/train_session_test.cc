#include "ddprun/worker/trainer/train_session.h"

#include <algorithm>

#include "ddprun/worker/data/distributed_sampler.h"
#include "ddprun/worker/trainer/replicas.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// 100 samples: 7 steps an epoch for two ranks with batch 8.
const std::string job_text =
    "[model]\nname = mlp\nhidden = 8 5\ndropout = 0.2\n[data]\nname = random\nsamples = 100\ntest_samples = 10\n"
    "[train]\nepochs = 3\nbatch_size = 8\n";

// Some steps in a session of its own on a group of its own, at every rank.
void train(std::vector<std::unique_ptr<Replica>>& replicas, std::int64_t steps) {
  run_ranks(static_cast<int>(replicas.size()), [&](ProcessGroup& group) {
    const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group);
    for (std::int64_t i = 0; i < steps; ++i) session->step(false);
  });
}

std::vector<std::unique_ptr<Replica>> replicas_of(const TrainingJob& job, int ranks) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int rank = 0; rank < ranks; ++rank) replicas.push_back(std::make_unique<Replica>(job));
  return replicas;
}

}  // namespace

TEST_CASE("a state goes on in another session on another group with the same bits") {
  for (const char* optimizer : {"[optim]\nname = adam\n", "[optim]\nname = sgd\nlr = 0.05\nmomentum = 0.9\n"}) {
    TrainingJob job(job_text + optimizer);
    const auto undisturbed = job.run(2)[0];
    REQUIRE(undisturbed.steps == 21);
    auto replicas = replicas_of(job, 2);
    for (const std::int64_t steps : {10, 4, 1, 6}) train(replicas, steps);  // the second ends with an epoch
    for (const auto& replica : replicas) {
      CHECK(replica->state.run.step == 21);
      CHECK(trainer::parameter_digest(*replica->state.model) == undisturbed.parameter_digest);
    }
  }
}

TEST_CASE("a state goes on in a smaller group at the same sample, and every sample is trained once") {
  TrainingJob job(
      "[model]\nname = linear\n[data]\nname = random\nsamples = 500\ntest_samples = 10\nworkers = 0\n"
      "[train]\nbatch_size = 9\n");
  const auto& samples = job.record_samples();
  auto replicas = replicas_of(job, 3);
  train(replicas, 7);
  CHECK(replicas[0]->state.run.samples == 189);
  replicas.erase(replicas.begin());
  train(replicas, 18);  // 311 samples in steps of 18
  CHECK(replicas[0]->state.run.epoch == 1);
  CHECK(replicas[0]->state.run.world_size == 2);
  auto trained = samples.indices();
  std::sort(trained.begin(), trained.end());
  CHECK(trained == data::epoch_order(500, 0, 0, false));
}

TEST_CASE("the number of steps of a run is the same from anywhere in it") {
  TrainingJob job(job_text);
  auto replicas = replicas_of(job, 2);
  run_ranks(2, [&](ProcessGroup& group) {
    const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group);
    for (int i = 0; i <= 21; ++i) {
      if (session->total_steps() != 21) throw std::runtime_error("another total");
      if (i < 21) session->step(false);
    }
  });
}
