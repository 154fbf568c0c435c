#include "ddprun/worker/trainer/commands/step_plan.h"

#include "ddprun/worker/trainer/commands/step_traffic.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::string job_text =
    "[model]\nname = cnn_bn\n[data]\nname = digits\nsamples = 96\ntest_samples = 10\n[eval]\nevery_epochs = "
    "0\n[optim]\n"
    "name = sgd\nmomentum = 0.9\n[train]\nmax_steps = 2\n";

trainer::StepPlan plan_of(const TrainingJob& job, int measured, int ranks) {
  trainer::StepPlan plan;
  run_ranks(measured, [&](ProcessGroup& group) {
    const auto own = trainer::measure_plan(job.config(), job.datasets(), group, ranks);
    if (group.rank() == 0) plan = own;
  });
  return plan;
}

// Returns the first record of a run's metrics.
boost::json::object memory_of_run(const std::string& text, int ranks) {
  const TempDir dir;
  TrainingJob(text + "[metrics]\nfile = " + (dir / "m").string() + "\n").run(ranks);
  std::istringstream lines(read_whole_file(dir / "m"));
  std::string line;
  std::getline(lines, line);
  return boost::json::parse(line).as_object();
}

void check_within_a_tenth(const boost::json::object& run, const char* key, std::size_t planned) {
  INFO(key);
  const auto measured = run.at(key).to_number<double>();
  CHECK(measured > 0);
  CHECK(static_cast<double>(planned) == Approx(measured).epsilon(0.1));
}

}  // namespace

TEST_CASE("a plan's memory is that of the run") {
  const int ranks = GENERATE(1, 2);
  const std::string batch = GENERATE("batch_size = 8\n", "global_batch_size = 24\n");
  CAPTURE(ranks, batch);
  const auto run = memory_of_run(job_text + batch, ranks);
  const auto plan = plan_of(TrainingJob(job_text + batch), ranks, ranks);
  check_within_a_tenth(run, "parameter_bytes", plan.memory.parameters);
  check_within_a_tenth(run, "gradient_bytes", plan.memory.gradients);
  check_within_a_tenth(run, "optimizer_bytes", plan.memory.optimizer);
  check_within_a_tenth(run, "activation_peak_bytes", plan.memory.activations);
  CHECK(plan.steps == 1);  // out of the job's two, after one of warm-up
}

TEST_CASE("a plan for more ranks than measure it has their share of the batch") {
  const std::string batch = "global_batch_size = 32\n";
  const TrainingJob job(job_text + batch);
  const auto run = memory_of_run(job_text + batch, 4);
  const auto plan = plan_of(job, 2, 4);
  CHECK(plan.ranks == 4);
  CHECK(plan.measured_ranks == 2);
  check_within_a_tenth(run, "activation_peak_bytes", plan.memory.activations);
}

TEST_CASE("a plan counts the bytes of gradients and of rank 0's buffers") {
  const TrainingJob job(job_text + "batch_size = 8\n");
  CHECK(plan_of(job, 1, 1).sent == 0);
  const auto plan = plan_of(job, 2, 2);
  const auto buffers = plan.memory.parameters - plan.memory.gradients;
  REQUIRE(buffers > 0);
  CHECK(plan.sent == plan.memory.gradients + buffers / 2);
}

TEST_CASE("the bytes of a step follow from the layout, the hook, micro-batches and ranks") {
  const auto sent = [](const trainer::TrainConfig::Parallel& config, std::int64_t micro_batches, int ranks) {
    return trainer::bytes_sent_in_step(config, {.parameters = 1200, .buffers = 0}, micro_batches, ranks).value();
  };
  CHECK(sent({}, 3, 1) == 0);
  CHECK(sent({}, 3, 2) == 1200);
  CHECK(sent({}, 3, 4) == 1800);
  CHECK(sent({.zero = 1}, 3, 4) == 1800);
  CHECK(sent({.zero = 2}, 1, 4) == 1800);
  CHECK(sent({.zero = 2}, 3, 4) == 3600);  // 3 reduce-scatters of 900 and a gather
  CHECK(sent({.zero = 3}, 3, 4) == 8100);
  CHECK(sent({.zero = 3, .reshard_after_forward = false}, 3, 4) == 5400);
  // The bytes are 600 each among 2 ranks, then an all-reduce of 600 between 2 replicas.
  CHECK(sent({.zero = 2, .shard_group = 2}, 1, 4) == 1800);
  CHECK(sent({.zero = 3, .shard_group = 2}, 1, 4) == 2400);
  for (const auto* hook : {"fp16", "bf16", "fp16+allreduce", "fp16+bf16"}) CHECK(sent({.hook = hook}, 1, 2) == 600);
  CHECK(sent({.hook = "int8"}, 1, 2) == 300);
  CHECK(sent({.hook = "int4"}, 1, 2) == 159);                        // 300 numbers of 4.25 bits
  CHECK(sent({.hook = "topk", .topk_fraction = 0.1}, 1, 2) == 240);  // 30 of them with their places,
  CHECK(sent({.hook = "topk", .topk_fraction = 0.1}, 1, 4) == 720);  // to each other rank
  for (const auto* hook : {"int8_channel", "powersgd", "powersgd+fp16", "fp16+batched_powersgd"})
    CHECK_FALSE(trainer::bytes_sent_in_step({.hook = hook}, {.parameters = 1200}, 1, 2));
  const auto with_buffers = [](const trainer::TrainConfig::Parallel& config) {
    return trainer::bytes_sent_in_step(config, {.parameters = 0, .buffers = 100}, 3, 2).value();
  };
  CHECK(with_buffers({}) == 50);
  CHECK(with_buffers({.zero = 2}) == 150);
  CHECK(with_buffers({.broadcast_buffers = false}) == 0);
}

TEST_CASE("a plan's table has a line for each figure") {
  const auto lines = trainer::plan_table({.ranks = 4,
                                          .measured_ranks = 2,
                                          .steps = 20,
                                          .memory = {.parameters = 1 << 20, .gradients = 1 << 19},
                                          .sent = 1234,
                                          .time = trainer::Seconds(0.0125)});
  REQUIRE(lines.size() == 7);
  CHECK(lines[0] == "a step, per rank                    4 ranks");
  CHECK(lines[1] == "parameters and buffers              1048576 bytes       1.00 MiB");
  CHECK(lines[5] == "sent                                   1234 bytes       0.00 MiB");
  CHECK(trainer::plan_table({})[5] == "sent                         not predicted with this parallel.hook");
  CHECK(lines[6] == "time                                 12.500 ms, the median of 20 steps with 2 ranks");
}
