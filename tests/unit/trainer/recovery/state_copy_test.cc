#include "worker/trainer/recovery/state_copy.h"

#include <array>

#include "common/error.h"
#include "worker/trainer/loop.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/recovery/whole_state.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

// The job has all kinds of state that a step changes.
const std::string job_text =
    "[model]\nname = cnn_bn\n[data]\nname = digits\nsamples = 64\ntest_samples = 8\n"
    "[train]\nepochs = 3\nbatch_size = 4\nprecision = fp16\nloss_scale_growth_interval = 2\nema = 0.9\n"
    "[optim]\nname = adam\nskip_outliers = 3\nschedule = plateau\n";

// Replicas and their backups, trained by all ranks together.
struct Ranks {
  explicit Ranks(const TrainingJob& job, int count) {
    for (int i = 0; i < count; ++i) {
      replicas.push_back(std::make_unique<Replica>(job));
      backups.push_back(std::make_unique<StepBackup>(replicas.back()->state, [](std::int64_t) {}));
    }
  }
  void train(int steps) {
    run_ranks(static_cast<int>(replicas.size()), [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      make_steps(*session_of(*replicas[rank], group), *backups[rank], steps);
    });
  }
  std::vector<std::unique_ptr<Replica>> replicas;
  std::vector<std::unique_ptr<StepBackup>> backups;
};

class Ignored : public Observer {};

// Asserts nothing, since ranks that are threads may call it at the same time.
bool loop_fails(Session& session, StepBackup* backup) {
  Ignored observer;
  try {
    run_loop(session, observer, backup);
  } catch (const Error&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a rank that copies another one's state goes on to the same bits, whichever rank it is") {
  const std::size_t replaced = GENERATE(0u, 1u);
  TrainingJob job(job_text);
  Ranks undisturbed(job, 2);
  undisturbed.train(8);

  Ranks ranks(job, 2), fresh(job, 1);
  ranks.train(5);
  auto last_step = *ranks.backups[1 - replaced]->last();
  last_step.result.experts = ExpertUse{.load = 1.5, .dropped = 0.25};
  ranks.backups[1 - replaced]->set_last(last_step);
  const auto expected = digest(ranks.replicas[1 - replaced]->state);
  ranks.replicas[replaced] = std::move(fresh.replicas[0]);
  ranks.backups[replaced] = std::move(fresh.backups[0]);
  const Catchup catchup{.source = static_cast<int>(1 - replaced), .lagging = {static_cast<int>(replaced)}};
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    copy_state(ranks.replicas[rank]->state, *ranks.backups[rank], group, catchup);
  });
  CHECK(digest(ranks.replicas[replaced]->state) == expected);
  const auto& last = ranks.backups[replaced]->last();
  REQUIRE(last);
  CHECK(last->result.loss == ranks.backups[1 - replaced]->last()->result.loss);
  CHECK(last->result.epoch == ranks.backups[1 - replaced]->last()->result.epoch);
  CHECK(last->result.samples == 8);
  REQUIRE(last->result.experts);
  CHECK(last->result.experts->load == 1.5);
  CHECK(last->result.experts->dropped == 0.25);
  ranks.train(3);
  for (const auto& replica : ranks.replicas) CHECK(digest(replica->state) == digest(undisturbed.replicas[0]->state));
}

TEST_CASE("after each step all ranks have the same buffers, so that rank 0's are not lost with it") {
  TrainingJob job(job_text);
  Ranks ranks(job, 2);
  ranks.train(1);
  const auto digests = [&](std::size_t rank) { return digest(ranks.replicas[rank]->state); };
  CHECK(digests(0) == digests(1));
}

TEST_CASE("a step whose reduction fails leaves the state as it was before") {
  TrainingJob job(job_text);
  Ranks ranks(job, 2);
  ranks.train(2);
  const auto before = digest(ranks.replicas[0]->state);
  bool failed = false;
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto session = session_of(*ranks.replicas[rank], group);
    if (rank == 1) return group.abort("rank 1 leaves");
    failed = loop_fails(*session, ranks.backups[0].get());
  });
  CHECK(failed);
  CHECK(digest(ranks.replicas[0]->state) == before);
}

TEST_CASE("the digest of these tests sees each part of the state that a step changes") {
  TrainingJob job(job_text);
  Replica replica(job);
  auto& state = replica.state;
  const auto changes = [&](const std::function<void()>& change) {
    const auto before = digest(state);
    change();
    return digest(state) != before;
  };
  const auto add_one = [](const optim::NamedTensors& tensors) {
    Tensor tensor = tensors.back().second;
    auto* bytes = static_cast<unsigned char*>(tensor.raw());
    bytes[0] = static_cast<unsigned char>(bytes[0] + 1);
  };
  CHECK(changes([&] { add_one(tensors_of(*state.model)); }));  // the last one is a buffer
  CHECK(changes([&] { add_one(state.optimizer->state()); }));
  CHECK(changes([&] { add_one(state.ema->averages()); }));
  CHECK(changes([&] { state.scaler->set_state({.scale = 2, .good_steps = 0}); }));
  CHECK(changes([&] { state.run.samples += 8; }));
  CHECK(changes([&] { state.run.gradient_norms.push_back(1); }));
  CHECK(changes([&] { state.run.best_loss = 1; }));
  CHECK(changes([&] { state.optimizer->set_step_count(9); }));
}

TEST_CASE("what the events of a step have changed of the run is taken back before they are repeated") {
  TrainingJob job(job_text);
  Ranks ranks(job, 1);
  ranks.train(2);
  auto& state = ranks.replicas[0]->state;
  const auto before = digest(state);
  state.record_evaluation(0.5);
  REQUIRE(digest(state) != before);
  ranks.backups[0]->undo_events();
  CHECK(digest(state) == before);
}

TEST_CASE("buffers that passes of a failed step have changed are as before it") {
  TrainingJob job(job_text);
  Ranks ranks(job, 1);
  ranks.train(1);
  auto& state = ranks.replicas[0]->state;
  const auto before = digest(state);
  ranks.backups[0]->begin_step();
  for (auto& [name, buffer] : state.model->named_buffers()) Tensor(buffer).fill(7);
  REQUIRE(digest(state) != before);
  ranks.backups[0]->undo_step();
  CHECK(digest(state) == before);
}

TEST_CASE("a rank that is lost once the gradients are reduced leaves the other one before the step") {
  TrainingJob job(job_text);
  Ranks ranks(job, 2);
  ranks.train(2);
  const auto before = digest(ranks.replicas[0]->state);
  std::array<bool, 2> failed{};
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto session = session_of(*ranks.replicas[rank], group);
    int passes = 0;  // the second end of this phase is that of the reduction
    if (rank == 1)
      session->listen_to_phases([&](profiler::Phase phase, auto, auto) {
        if (phase == &StepTimes::backward && ++passes == 2) group.abort("rank 1 is lost");
      });
    failed[rank] = loop_fails(*session, ranks.backups[rank].get());
  });
  CHECK(failed == std::array{true, true});
  CHECK(digest(ranks.replicas[0]->state) == before);
}
