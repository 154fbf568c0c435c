#include "worker/trainer/session/hook_memory.h"

#include <optional>
#include <stdexcept>

#include "worker/trainer/session/step_backup.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

struct States {
  std::vector<float> error;
  std::vector<std::int64_t> passes;

  // The memory stays.
  void set(float first, float second, std::int64_t count) {
    error.assign({first, second});
    passes.assign({count});
  }
  std::vector<HookState> states() { return {{"error", span_of(error)}, {"passes", span_of(passes)}}; }
};

// Makes steps; the one after so many is interrupted once all gradients are computed, if fails_after is given.
void make_steps(Session& session, StepBackup& backup, int count, std::optional<int> fails_after = {}) {
  for (int i = 0; i < count; ++i) {
    if (fails_after == i)
      session.listen_to_phases([&](profiler::Phase phase, auto, auto) {
        if (phase == &StepTimes::backward) session.group().abort("a rank was lost");
      });
    backup.begin_step();
    try {
      backup.end_step(session.step(false));
    } catch (const Error&) {
      backup.undo_step();
      return;
    }
  }
}

std::string digest_of(Session& session) {
  return parameter_digest([&](const auto& visitor) { session.visit_parameters(visitor); });
}

}  // namespace

TEST_CASE("a rank without the states of a hook gets the mean of the others', and their integers") {
  std::vector<States> ranks(3);
  std::vector<HookMemory> memories(3);
  using Begun = HookMemory::Begun;
  std::vector<Begun> begun(3);
  const auto in_group = [&](const std::function<void(std::size_t rank, ProcessGroup & group)>& body) {
    run_ranks(3, [&](ProcessGroup& group) { body(static_cast<std::size_t>(group.rank()), group); });
  };
  in_group([&](std::size_t rank, ProcessGroup& group) {
    ranks[rank].set(1, 2, 3);
    begun[rank] = memories[rank].begin(ranks[rank].states(), group);
  });
  CHECK(begun == std::vector(3, Begun::anew));
  for (const auto& each : ranks) CHECK(each.error == std::vector<float>{1, 2});  // no rank had any before
  in_group([&](std::size_t rank, ProcessGroup& group) {
    ranks[rank].set(0.1F, static_cast<float>(rank), 7);
    memories[rank].end();
    if (rank == 0) memories[rank].forget();
    ranks[rank].set(0, 0, 0);
    begun[rank] = memories[rank].begin(ranks[rank].states(), group);
  });
  CHECK(begun == std::vector(3, Begun::mean));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(ranks[rank].error == std::vector{0.1F, rank == 0 ? 1.5F : static_cast<float>(rank)});
    CHECK(ranks[rank].passes == std::vector<std::int64_t>{7});
  }
}

TEST_CASE("after a step that was taken back the next group has the states before it, or after it if it stands") {
  const bool stands = GENERATE(false, true);
  std::vector<States> ranks(2);
  run_ranks(2, [&](ProcessGroup& group) {
    auto& own = ranks[static_cast<std::size_t>(group.rank())];
    HookMemory memory;
    own.set(1, 2, 3);
    memory.begin(own.states(), group);
    own.set(4, 5, 6);  // by the step
    memory.undo();
    const bool is_undone = own.error == std::vector<float>{1, 2};
    memory.redo();
    if (!is_undone || own.error != std::vector<float>{4, 5}) throw std::logic_error("undo() or redo() has no effect");
    memory.undo();
    memory.end();
    memory.choose_undone(!stands);  // of several choices the last one counts
    memory.choose_undone(stands);
    memory.begin(own.states(), group);
  });
  for (const auto& each : ranks) {
    CHECK(each.error == (stands ? std::vector<float>{4, 5} : std::vector<float>{1, 2}));
    CHECK(each.passes == std::vector<std::int64_t>{stands ? 6 : 3});
  }
}

TEST_CASE("states with values from elsewhere are those of the next group") {
  std::vector<States> ranks(2);
  run_ranks(2, [&](ProcessGroup& group) {
    auto& own = ranks[static_cast<std::size_t>(group.rank())];
    HookMemory memory;
    own.set(1, 2, 3);
    memory.begin(own.states(), group);
    memory.end();
    own.set(4, static_cast<float>(group.rank()), 6);
    memory.take(own.states());
    memory.begin(own.states(), group);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(ranks[rank].error == std::vector{4.0F, static_cast<float>(rank)});
}

TEST_CASE("a step that has failed is made again in another group with the same error of the hook") {
  const std::string hook = GENERATE("int4", "topk", "onebit", "powersgd", "batched_powersgd");
  CAPTURE(hook);
  const TrainingJob job(
      "[model]\nname = mlp\nhidden = 40\n[data]\nname = digits\nsamples = 64\ntest_samples = 8\n"
      "[train]\nepochs = 4\nbatch_size = 4\n[parallel]\nhook = " +
      hook + (hook == "onebit" ? "\nfreeze_step = 2\n[optim]\nname = adam\n" : "\n"));
  const auto train = [&](std::optional<int> fails_after) {
    std::vector<std::string> digests(2);
    std::vector<std::unique_ptr<Replica>> replicas(2);
    std::vector<std::unique_ptr<StepBackup>> backups(2);
    for (const int steps : {6, 12}) {
      run_ranks(2, [&](ProcessGroup& group) {
        const auto rank = static_cast<std::size_t>(group.rank());
        if (!replicas[rank]) {
          replicas[rank] = std::make_unique<Replica>(job);
          backups[rank] = std::make_unique<StepBackup>(replicas[rank]->state, [](std::int64_t) {});
        }
        auto& replica = *replicas[rank];
        const auto session = make_session(
            {.config = replica.config, .datasets = replica.datasets, .task = *replica.task, .recovers = true},
            replica.state, group);
        backups[rank]->begin_session(*session);
        const auto left = steps - static_cast<int>(replica.state.run.step);
        make_steps(*session, *backups[rank], left, steps == 6 ? fails_after : std::nullopt);
        if (steps == 12) digests[rank] = digest_of(*session);
        backups[rank]->end_session();
      });
    }
    CHECK(digests[0] == digests[1]);
    return digests[0];
  };
  CHECK(train(4) == train(std::nullopt));
}
