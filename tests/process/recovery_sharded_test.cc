#include <csignal>
#include <initializer_list>
#include <optional>
#include <random>

#include "common/atomic_file.h"
#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"

// Jobs whose ranks have parts of the state go on in the other workers' processes when one is killed.
using namespace ddprun::testing;

namespace {

const std::string from_copies = "from copies in the memory of neighbours (checkpoint.peers)";
const std::string from_checkpoint = "from the newest checkpoint";

Words job_of(const Training& training, const Words& launch, const Words& more = {}) {
  Words all{"--standalone", "--nproc_per_node=4"};
  all.insert(all.end(), launch.begin(), launch.end());
  auto overrides = recorded(training, more);
  overrides.push_back("--data.ledger=" + (training.folder / "ledger").string());
  return training.job(all, overrides);
}

// There is no record yet where the ranks have returned to the beginning.
std::int64_t last_recorded_step(const Training& training) {
  const auto steps = recorded_steps(training);
  return steps.empty() ? 0 : steps.back();
}

std::string undisturbed_digest(const Words& more) {
  const Training training;
  const auto result = Child(job_of(training, {}, more)).wait(bound);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

// Checks that the ledger proves each sample once. Returns the number of its sessions that began with a return.
int check_ledger(const Training& training) {
  const auto ledger = training.folder / "ledger";
  const auto verdict = Child({DDPRUN_WORKER, "ledger", "verify", ledger.string()}).wait(bound);
  INFO(verdict.out + verdict.err);
  CHECK(verdict.code == 0);
  CHECK(verdict.out.find("3200 samples, each once in its epoch") != std::string::npos);
  return occurrences(ddprun::read_whole_file(ledger), "\"rolled_back_from\": ");
}

// Checks that the ledger, whose sessions that began with a return are so many, agrees with what the output says of
// them. A step that was applied may not have been told yet: a return by one step may be none in the ledger.
void check_returns(int returns, const std::string& output) {
  const int none = occurrences(output, ": 0 steps are repeated"), one = occurrences(output, ": 1 step is repeated");
  const int all = occurrences(output, "repeated");
  CHECK(returns <= all - none);
  CHECK(returns >= all - none - one);
}

void check_end(const Training& training, const Child::Result& result, const std::string& expected) {
  CHECK(result.code == 0);
  CHECK(parameters_of(result.out) == expected);
  CHECK(recorded_steps(training) == first_steps(80));
  CHECK(occurrences(result.err, "new round") == 0);
  CHECK(training.marker.processes() == 0);
}

// Runs a job of which these ranks are killed, one after the other.
Child::Result run_with_kills(const Training& training, const Words& overrides, std::initializer_list<int> ranks) {
  Child child(job_of(training, {"--max_restarts=" + std::to_string(ranks.size())}, overrides),
              training.marker.variables());
  std::int64_t step = 20;  // a checkpoint is complete by then
  for (const int rank : ranks) {
    wait_for_step(child, training, step);
    replace(child, training, rank);
    step = last_recorded_step(training) + 5;
  }
  return child.wait(bound);
}

}  // namespace

TEST_CASE("with parallel.zero and copies at neighbours, kills of any rank end with the same bits") {
  const std::string zero = GENERATE("1", "2", "3");
  const Words overrides{"--parallel.zero=" + zero,      "--checkpoint.peers=1",
                        "--model.name=cnn_bn",          "--train.ema=0.9",
                        "--train.precision=fp16",       "--optim.skip_outliers=5",
                        "--optim.schedule=plateau",     "--optim.name=adam",
                        "--optim.clip_norm=1",          "--train.loss_scale_growth_interval=3",
                        "--checkpoint.every_steps=1000"};
  CAPTURE(zero);
  const auto expected = undisturbed_digest(overrides);
  REQUIRE(expected.size() == 64);
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=4"}, overrides), training.marker.variables());
    std::int64_t step = 3;
    for (const int rank : {1, 0, 3, 2}) {
      wait_for_step(child, training, step);
      replace(child, training, rank);
      // The ranks have recovered once they record a step after it: neighbours must not be lost at once.
      step = last_recorded_step(training) + 2 + static_cast<std::int64_t>(random() % 15);
    }
    const auto result = child.wait(bound);
    INFO(result.out + result.err);
    check_end(training, result, expected);
    CHECK(occurrences(result.out + result.err, from_copies) == 4);
    check_returns(check_ledger(training), result.out + result.err);
  });
}

TEST_CASE("a pipeline that is cut by measured times has the same stages in the next group") {
  const bool has_replicas = GENERATE(true, false);
  CAPTURE(has_replicas);
  const std::string stages = has_replicas ? "2" : "4";
  const Words overrides{"--parallel.pipeline=" + stages,      "--parallel.micro_batches=" + stages,
                        "--train.batch_size=" + stages + "0", "--model.name=mlp",
                        "--model.hidden=64 64 64 64",         "--checkpoint.peers=1",
                        "--checkpoint.every_steps=1000"};
  const auto expected = undisturbed_digest(overrides);
  REQUIRE(expected.size() == 64);
  in_time([&] {
    const Training training;
    const auto result = run_with_kills(training, overrides, {0, 3});
    INFO(result.out + result.err);
    check_end(training, result, expected);
    CHECK(occurrences(result.out + result.err, from_copies) == (has_replicas ? 0 : 2));
  });
}

TEST_CASE("without copies at neighbours the ranks return to the newest checkpoint, in their processes") {
  const bool two_at_once = GENERATE(false, true);
  CAPTURE(two_at_once);
  const Words overrides{"--parallel.zero=1", two_at_once ? "--checkpoint.peers=1" : "--checkpoint.peers=0"};
  const auto expected = undisturbed_digest(overrides);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=2"}, overrides), training.marker.variables());
    wait_for_step(child, training, 20);
    if (two_at_once) {
      const auto before = all_workers(child, training);
      for (const int rank : {1, 2}) ::kill(before.at(rank), SIGKILL);  // neighbours
      wait_for_replacements(child, training, before, {1, 2});
    } else {
      replace(child, training, 2);
    }
    const auto result = child.wait(bound);
    INFO(result.out + result.err);
    check_end(training, result, expected);
    CHECK(occurrences(result.out + result.err, from_checkpoint) == 1);
    check_returns(check_ledger(training), result.out + result.err);
  });
}

TEST_CASE("copies and checkpoints have what a hook keeps: the same bits") {
  const std::string hook = GENERATE("int4", "topk", "powersgd", "batched_powersgd");
  const std::string peers = GENERATE("1", "0");
  if (peers == "0" && hook != "topk") return;
  CAPTURE(hook, peers);
  Words overrides{"--parallel.zero=1", "--parallel.hook=" + hook, "--checkpoint.peers=" + peers};
  if (hook.ends_with("powersgd")) overrides.emplace_back("--parallel.start_powerSGD_iter=5");
  if (peers == "1") overrides.emplace_back("--checkpoint.every_steps=1000");
  const auto expected = undisturbed_digest(overrides);
  REQUIRE(expected.size() == 64);
  in_time([&] {
    const Training training;
    const auto result = run_with_kills(training, overrides, {0, 2});
    INFO(result.out + result.err);
    check_end(training, result, expected);
    CHECK(occurrences(result.out + result.err, peers == "1" ? from_copies : from_checkpoint) == 2);
    CHECK(occurrences(result.out + result.err, "begins anew") == 0);
    check_returns(check_ledger(training), result.out + result.err);
  });
}

TEST_CASE("stages and slices whose replicas have errors of their own go on, and each sample counts once") {
  const Words stages{"--parallel.pipeline=2", "--parallel.micro_batches=2", "--train.batch_size=20"};
  Words overrides = GENERATE_COPY(stages, Words{"--parallel.tensor=2"});
  CAPTURE(overrides);
  for (const char* word : {"--parallel.hook=topk", "--model.name=mlp", "--model.hidden=64 64 64 64",
                           "--checkpoint.every_steps=1000", "--recovery.mode=in_process"})
    overrides.emplace_back(word);
  in_time([&] {
    const Training training;
    const auto result = run_with_kills(training, overrides, {3, 0});
    INFO(result.out + result.err);
    check_end(training, result, parameters_of(result.out));
    CHECK(parameters_of(result.out).size() == 64);
    check_ledger(training);
  });
}

TEST_CASE("parts of the state in files come from files of a neighbour, or from a checkpoint") {
  const bool has_copies = GENERATE(true, false);
  CAPTURE(has_copies);
  const TempDir files;
  const Words overrides{"--parallel.zero=1", "--optim.name=adam", "--optim.offload=" + files.path().string(),
                        has_copies ? "--checkpoint.peers=1" : "--checkpoint.peers=0"};
  const auto expected = undisturbed_digest(overrides);
  REQUIRE(expected.size() == 64);
  in_time([&] {
    const Training training;
    const auto result = run_with_kills(training, overrides, {2, 0});
    INFO(result.out + result.err);
    check_end(training, result, expected);
    CHECK(occurrences(result.out + result.err, has_copies ? from_copies : from_checkpoint) == 2);
    check_returns(check_ledger(training), result.out + result.err);
  });
}

// The first stages are those of the job without a fault, and so are the bits: they do not depend on the stages.
TEST_CASE("after layers of a pipeline have moved, the others go on in their processes, with the same bits") {
  const bool has_replicas = GENERATE(true, false);
  CAPTURE(has_replicas);
  const std::string stages = has_replicas ? "2" : "4";
  Words overrides{"--model.plugin=" DDPRUN_PLUGINS "/libslow_layers.so",
                  "--model.name=slow_layers",
                  "--slow.layers=8",
                  "--slow.layer_us=150",
                  "--slow.slow_us=5000",
                  "--slow.rank=3",
                  "--parallel.pipeline=" + stages,
                  "--parallel.micro_batches=" + stages,
                  "--train.batch_size=" + stages + "0",
                  "--optim.name=adamw",
                  "--train.epochs=5",
                  "--eval.every_epochs=0",
                  "--checkpoint.peers=1",
                  "--checkpoint.every_steps=1000"};
  const auto expected = undisturbed_digest(overrides);
  REQUIRE(expected.size() == 64);
  overrides.emplace_back("--parallel.balance=true");
  std::optional<Training> training;
  std::optional<Child> child;
  const auto has_moved = [&] { return occurrences(child->out() + child->err(), " moves from stage ") > 0; };
  // Other work on the machine may hide which rank is slow: jobs are run until one moves a layer.
  for (int jobs = 0; jobs < 5 && !(child && has_moved()); ++jobs) {
    child.reset();
    training.emplace();
    child.emplace(job_of(*training, {"--max_restarts=1"}, overrides), training->marker.variables());
    child->wait_until([&] { return has_moved() || last_recorded_step(*training) > 150; }, "a layer that moves", bound);
  }
  REQUIRE(has_moved());
  wait_for_step(*child, *training, last_recorded_step(*training) + 3);
  replace(*child, *training, has_replicas ? 3 : 0);
  const auto result = child->wait(bound);
  INFO(result.out + result.err);
  CHECK(result.code == 0);
  CHECK(parameters_of(result.out) == expected);
  CHECK(recorded_steps(*training) == first_steps(200));
  CHECK(occurrences(result.err, "new round") == 0);
  CHECK(occurrences(result.out + result.err, from_copies) == (has_replicas ? 0 : 1));
  const auto ledger = training->folder / "ledger";
  CHECK(Child({DDPRUN_WORKER, "ledger", "verify", ledger.string()}).wait(bound).code == 0);
}

TEST_CASE("without copies and checkpoints the ranks begin again, in their processes") {
  const Words overrides{"--parallel.zero=1", "--checkpoint.every_steps=1000"};
  const auto expected = undisturbed_digest(overrides);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=1"}, overrides), training.marker.variables());
    wait_for_step(child, training, 20);
    replace(child, training, 3);
    const auto result = child.wait(bound);
    INFO(result.out + result.err);
    check_end(training, result, expected);
    CHECK(occurrences(result.out + result.err, "nor a checkpoint") == 1);
    CHECK(check_ledger(training) == 1);
  });
}
