// A pipeline one of whose ranks is slow.
#include <cmath>

#include "tests/process/worker.h"
#include "tests/support/step_records.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr std::size_t steps = 90;

// Two stages of three layers each, at first; a rank of the second one takes six times as long for a layer.
struct Job {
  TempDir folder;
  std::filesystem::path metrics = folder / "metrics";
  int ranks = 2;

  explicit Job(int data_ranks = 1) : ranks(2 * data_ranks) {
    std::ofstream(folder / "train.cfg")
        << "[model]\nplugin = " << DDPRUN_PLUGINS << "/libslow_layers.so\nname = slow_layers\n"
        << "[slow]\nlayers = 6\nlayer_us = 500\nslow_us = 3000\nrank = " << data_ranks << "\n"
        << "[data]\nname = random\nsamples = 80\ntest_samples = 4\n[optim]\nname = adamw\nlr = 0.01\n"
        << "[train]\nepochs = 1000\nglobal_batch_size = 8\nlog_every = 0\ncheck_replicas = true\n"
        << "[eval]\nevery_epochs = 0\n[metrics]\nfile = " << metrics.string() << "\n"
        << "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = 4\n";
  }
  Child::Result run(std::size_t to_step, const Words& more = {}) const {
    Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks),
                (folder / "train.cfg").string(), "--train.max_steps=" + std::to_string(to_step)};
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

TEST_CASE("a slow stage of a pipeline gives a layer away, and the run learns and resumes as without that") {
  const Job job, balanced;
  CHECK_THAT(output_of(job.run(steps)), !Catch::Contains("moves from stage"));
  const Words more{"--parallel.balance=true", "--checkpoint.dir=" + (balanced.folder / "checkpoints").string()};
  // There are two measurements of 20 steps, and one that warms up.
  const auto moved = output_of(balanced.run(60, more));
  const std::regex line(
      "step [0-9]+: layer 4 moves from stage 1 to stage 0: stages compute [0-9.]+, [0-9.]+ ms a step: the slowest "
      "would take [0-9.]+ ms in place of");
  CHECK(std::regex_search(moved, line));
  CHECK_THAT(output_of(balanced.run(steps, more)), Catch::Contains("going on from the checkpoint of step 60"));
  check_same_losses(job, balanced, steps);
}

TEST_CASE("a stage is as slow as the slowest of its data ranks, and its layer moves at all of them") {
  const Job job(2), balanced(2);
  job.run(60);
  CHECK_THAT(output_of(balanced.run(60, {"--parallel.balance=true"})),
             Catch::Contains("layer 4 moves from stage 1 to stage 0"));
  check_same_losses(job, balanced, 60);
}

TEST_CASE("the state, the averages and divided parameters move with their layer") {
  const std::string zero = GENERATE(as<std::string>(), "1", "3");
  INFO("parallel.zero = " << zero);
  // A layer of the slow rank takes much longer than gathers do beside other work on the machine.
  const Words divided{"--parallel.zero=" + zero, "--train.ema=0.9", "--eval.every_epochs=1", "--slow.slow_us=10000"};
  const Job job(2), balanced(2);
  const auto expected = output_of(job.run(60, divided));
  Words more = divided;
  more.push_back("--parallel.balance=true");
  const auto moved = output_of(balanced.run(60, more));
  CHECK_THAT(moved, Catch::Contains("layer 4 moves from stage 1 to stage 0"));
  check_same_losses(job, balanced, 60);
  const std::regex loss("done: 60 steps, loss ([0-9.]+)");  // the loss of the averages
  std::smatch of_expected, of_moved;
  REQUIRE(std::regex_search(expected, of_expected, loss));
  REQUIRE(std::regex_search(moved, of_moved, loss));
  CHECK(std::stod(of_moved[1]) == Approx(std::stod(of_expected[1])).epsilon(1e-3));
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
