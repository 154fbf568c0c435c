// A pipeline one of whose ranks is slow.
#include <cmath>

#include "tests/process/worker.h"
#include "tests/support/step_records.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// Two stages of three layers each, at first; the second one's rank takes six times as long for a layer.
struct Job {
  TempDir folder;
  std::filesystem::path metrics = folder / "metrics";

  Job() {
    std::ofstream(folder / "train.cfg")
        << "[model]\nplugin = " << DDPRUN_PLUGINS << "/libslow_layers.so\nname = slow_layers\n"
        << "[slow]\nlayers = 6\nlayer_us = 500\nslow_us = 3000\nrank = 1\n"
        << "[data]\nname = random\nsamples = 80\ntest_samples = 4\n[optim]\nname = adamw\nlr = 0.01\n"
        << "[train]\nepochs = 1000\nglobal_batch_size = 8\nlog_every = 0\ncheck_replicas = true\n"
        << "[eval]\nevery_epochs = 0\n[metrics]\nfile = " << metrics.string() << "\n"
        << "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = 4\n";
  }
  Child::Result run(std::size_t to_step, const Words& more = {}) const {
    Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", (folder / "train.cfg").string(),
                "--train.max_steps=" + std::to_string(to_step)};
    words.insert(words.end(), more.begin(), more.end());
    auto result = run_job(words);
    INFO(result.out << result.err);
    REQUIRE(result.code == 0);
    return result;
  }
};

void check_same_losses(const Job& expected_of, const Job& found_of, std::size_t count) {
  const auto expected = read_records(expected_of.metrics).losses, found = read_records(found_of.metrics).losses;
  REQUIRE(expected.size() == count);
  REQUIRE(found.size() == count);
  for (std::size_t i = 0; i < count; ++i) CHECK(std::abs(found[i] - expected[i]) <= 1e-6 * expected[i]);
}

std::string output_of(const Child::Result& result) {
  return result.out + result.err;
}

}  // namespace

// Other work on the machine may hide the slowness in some measurements: the run goes on, from its checkpoints, until a
// layer has moved.
TEST_CASE("a slow stage of a pipeline gives a layer away, and the run learns and resumes as without that") {
  const Job job, balanced;
  const Words more{"--parallel.balance=true", "--checkpoint.dir=" + (balanced.folder / "checkpoints").string()};
  const std::regex line(
      "step [0-9]+: layer 4 moves from stage 1 to stage 0: stages compute [0-9.]+, [0-9.]+ ms a step: the slowest "
      "would take [0-9.]+ ms in place of");
  constexpr std::size_t most_steps = 900;
  std::size_t steps = 0;
  for (bool moved = false; !moved && steps < most_steps;) {
    steps += 60;  // two measurements of 20 steps, and one that warms up
    moved = std::regex_search(output_of(balanced.run(steps, more)), line);
  }
  REQUIRE(steps < most_steps);
  CHECK_THAT(output_of(balanced.run(steps + 30, more)),
             Catch::Contains("going on from the checkpoint of step " + std::to_string(steps)));
  CHECK_THAT(output_of(job.run(steps + 30)), !Catch::Contains("moves from stage"));
  check_same_losses(job, balanced, steps + 30);
}

TEST_CASE("layers are balanced between ranks of one stage each, and stages begin with a layer that learns") {
  const Job job;
  const auto refusal = [&](const Words& more) {
    Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", (job.folder / "train.cfg").string(),
                "--parallel.balance=true"};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run_job(words);
    CHECK(result.code == 2);
    return output_of(result);
  };
  CHECK_THAT(refusal({"--parallel.schedule=interleaved", "--parallel.virtual_stages=2", "--parallel.split="}),
             Catch::Contains("parallel.balance = true: it has no effect with parallel.virtual_stages = 2"));
  CHECK_THAT(refusal({"--parallel.split=1"}), Catch::Contains("stages that are balanced begin with"));
}
