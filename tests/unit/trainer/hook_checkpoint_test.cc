#include "worker/trainer/state/hook_checkpoint.h"

#include <map>
#include <string>

#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;
using trainer::GatheredHookState;

namespace {

// A hook's state: numbers of its own and a count.
struct Memory {
  explicit Memory(int rank = 0) : errors{static_cast<float>(rank), static_cast<float>(10 * rank)} {}
  std::vector<HookState> state() { return {{"errors", span_of(errors)}, {"passes", span_of(passes)}}; }
  std::vector<float> errors;
  std::vector<std::int64_t> passes{7};
};

void save(int ranks, const TempDir& dir) {
  run_ranks(ranks, [&](ProcessGroup& group) {
    Memory memory(group.rank() + 1);
    const GatheredHookState gathered(memory.state(), group);
    if (group.rank() > 0) return;
    checkpoint::Checkpoints({.folder = dir.path()})
        .save({.state = {.step = 1, .world_size = ranks}, .hook = gathered.views()});
  });
}

std::vector<Memory> restore(int ranks, const TempDir& dir, std::size_t errors = 2) {
  std::vector<Memory> all(static_cast<std::size_t>(ranks));
  const auto found = checkpoint::Checkpoints({.folder = dir.path()}).newest();
  run_ranks(ranks, [&](ProcessGroup& group) {
    auto& memory = all[static_cast<std::size_t>(group.rank())];
    memory.errors.assign(errors, 0);
    memory.passes = {0};
    trainer::restore_hook_state(*found, memory.state(), group);
  });
  return all;
}

std::string job(const TempDir& dir, const std::string& hook, std::int64_t steps) {
  const std::string optim = hook == "onebit" ? "name = adam\nlr = 0.001" : "name = sgd\nlr = 0.05";
  std::string keys;
  if (hook == "onebit") keys = "freeze_step = 3\n";
  if (hook.find("powersgd") != std::string::npos) keys = "start_powerSGD_iter = 3\nmatrix_approximation_rank = 2\n";
  return "[data]\nname = digits\nsamples = 640\ntest_samples = 50\n[model]\nname = mlp\nhidden = 32\n[optim]\n" +
         optim +
         "\n[eval]\nevery_epochs = 0\n[train]\nbatch_size = 16\nepochs = 3\ncheck_replicas = true\n"
         "max_steps = " +
         std::to_string(steps) + "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() +
         "\n[parallel]\nhook = " + hook + "\n" + keys;
}

std::string digest(const TempDir& dir, const std::string& hook, std::int64_t steps, int ranks = 2) {
  return TrainingJob(job(dir, hook, steps)).run(ranks)[0].parameter_digest;
}

}  // namespace

TEST_CASE("every rank gets its own hook state back from a checkpoint of as many ranks") {
  TempDir dir;
  save(3, dir);
  const auto found = restore(3, dir);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(found[r].errors == Memory(static_cast<int>(r) + 1).errors);
    CHECK(found[r].passes[0] == 7);
  }
}

TEST_CASE("from a checkpoint of another number of ranks each gets the mean of their hook states") {
  TempDir dir;
  save(3, dir);
  for (const int ranks : {1, 2, 4}) {
    for (const auto& memory : restore(ranks, dir)) {
      CHECK(memory.errors == std::vector<float>{2, 20});
      CHECK(memory.passes[0] == 7);
    }
  }
}

TEST_CASE("a hook state that does not fit is left out") {
  TempDir dir;
  save(2, dir);
  for (const auto& memory : restore(2, dir, 5)) {
    CHECK(memory.errors == std::vector<float>(5, 0));
    CHECK(memory.passes[0] == 0);
  }
}

TEST_CASE("a run with a hook that stops and goes on has the bits of one that did not") {
  for (const std::string hook :
       {"fp16", "int8", "onebit", "powersgd", "batched_powersgd", "fp16+powersgd", "powersgd+int8"}) {
    INFO(hook);
    TempDir undisturbed, dir;
    const auto expected = digest(undisturbed, hook, 12);
    for (const std::int64_t steps : {2, 5, 8}) digest(dir, hook, steps);
    CHECK(digest(dir, hook, 12) == expected);
  }
}

TEST_CASE("the hook's state decides: without it the run goes on differently") {
  TempDir undisturbed, dir;
  const auto expected = digest(undisturbed, "powersgd", 12);
  digest(dir, "allreduce", 0 + 3);  // powersgd does the same until its third step, without a state to save
  CHECK(digest(dir, "powersgd", 12) != expected);
}

TEST_CASE("a run with PowerSGD goes on with another number of ranks") {
  TempDir dir;
  digest(dir, "powersgd", 6, 2);
  CHECK(TrainingJob(job(dir, "powersgd", 12)).run(3)[0].steps == 12);
  CHECK(TrainingJob(job(dir, "powersgd", 14)).run(1)[0].steps == 14);
}
