#include "worker/trainer/commands/step_plan.h"

#include "worker/trainer/commands/computed_step.h"
#include "worker/trainer/commands/measured_step.h"
#include "worker/trainer/commands/small_job.h"
#include "worker/trainer/commands/step_table.h"
#include "worker/trainer/commands/step_traffic.h"
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

// The steps of ranks that are threads: to fork processes, the test would have to have one thread.
trainer::MeasuredStep measured(const TrainingJob& job, int ranks) {
  trainer::MeasuredStep result;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const auto own = trainer::measure_step(job.config(), job.datasets(), group);
    if (group.rank() == 0) result = own;
  });
  return result;
}

trainer::ComputedStep computed(const TrainingJob& job, int ranks) {
  return trainer::compute_step(job.config(), job.datasets().train->layout(), ranks);
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

void check_within_a_tenth(const boost::json::object& run, const char* key, double planned) {
  INFO(key);
  const auto measured = run.at(key).to_number<double>();
  CHECK(measured > 0);
  CHECK(planned == Approx(measured).epsilon(0.1));
}

void check_memory(const boost::json::object& run, const trainer::RankUse& use) {
  check_within_a_tenth(run, "parameter_bytes", use.parameters);
  check_within_a_tenth(run, "gradient_bytes", use.gradients);
  check_within_a_tenth(run, "optimizer_bytes", use.optimizer);
  check_within_a_tenth(run, "activation_peak_bytes", use.activations);
}

}  // namespace

TEST_CASE("a plan's memory is that of the run") {
  const int ranks = GENERATE(1, 2);
  const std::string batch = GENERATE("batch_size = 8\n", "global_batch_size = 24\n");
  CAPTURE(ranks, batch);
  const auto run = memory_of_run(job_text + batch, ranks);
  const TrainingJob job(job_text + batch);
  check_memory(run, computed(job, ranks).use);
  const auto step = measured(job, ranks);
  check_memory(run, step.use);
  CHECK(step.steps == 1);  // out of the job's two, after one of warm-up
}

TEST_CASE("a plan with train.shards has the memory of their sums, and the passes of a rank") {
  const std::string text =
      "[model]\nname = cnn\n[data]\nname = digits\nsamples = 96\ntest_samples = 10\n[eval]\nevery_epochs = 0\n"
      "[optim]\nname = sgd\n[train]\nmax_steps = 2\nbatch_size = 4\nshards = 4\n";
  const TrainingJob job(text);
  const auto plan = trainer::plan_step(job.config(), job.datasets().train->layout(), 2, {},
                                       [](const trainer::SmallJob& small) -> trainer::MeasuredStep {
                                         CHECK(small.config.train.accumulate == 2);
                                         CHECK(small.config.train.batch_size == 4);
                                         throw Error(Errc::peer_lost, "no time is needed");
                                       });
  const auto run = memory_of_run(text, 2);
  check_within_a_tenth(run, "activation_peak_bytes", plan.use.activations);
  // The gradients, two sums, and what a rank sends and receives, which the run does not tell.
  check_within_a_tenth(run, "gradient_bytes", plan.use.gradients * 3 / 5);
}

TEST_CASE("a job of few ranks has the share of the batch of the larger one's ranks") {
  const std::string batch = "global_batch_size = 32\n";
  const TrainingJob job(job_text + batch);
  const auto run = memory_of_run(job_text + batch, 4);
  const auto small = trainer::small_job(job.config(), 4);
  CHECK(small.ranks == 2);
  CHECK_FALSE(small.is_slice);
  const TrainingJob of_two(job_text + "batch_size = 8\n");
  CHECK(batch_sizes(small.config.train, 2).micro == batch_sizes(of_two.config().train, 2).micro);
  check_within_a_tenth(run, "activation_peak_bytes", measured(of_two, 2).use.activations);
  check_memory(run, computed(job, 4).use);
}

TEST_CASE("a job of which more than two ranks share a model is measured with two") {
  trainer::TrainConfig config;
  config.train.batch_size = 4;
  config.parallel = {.ranks = {{"tensor", 8}}, .sequence = true};
  auto small = trainer::small_job(config, 64);
  CHECK(small.ranks == 2);
  CHECK(small.is_slice);
  CHECK(small.config.parallel.ranks.on("tensor") == 2);
  CHECK(small.config.parallel.sequence);
  CHECK(small.config.train.batch_size == 4);

  config.train = {.global_batch_size = 64};
  config.parallel = {.split = "h.1, h.2, h.3", .ranks = {{"pipeline", 4}}, .micro_batches = 16};
  small = trainer::small_job(config, 8);
  CHECK(small.ranks == 2);
  CHECK(small.config.parallel.ranks.on("pipeline") == 2);
  CHECK(small.config.parallel.split.empty());
  CHECK(small.config.parallel.micro_batches == 8);
  CHECK(small.config.train.batch_size == 8 * 2);  // micro-batches of two samples

  config.parallel = {.zero = 1, .ranks = {{"tensor", 2}, {"pipeline", 2}}, .micro_batches = 16};
  small = trainer::small_job(config, 8);
  CHECK(small.config.parallel.ranks.on("tensor") == 2);
  CHECK(small.config.parallel.ranks.on("pipeline") == 1);
  CHECK(small.config.parallel.micro_batches == 0);
  CHECK(small.config.train.batch_size == 2);
}

TEST_CASE("a plan counts the bytes of gradients and of rank 0's buffers") {
  const TrainingJob job(job_text + "batch_size = 8\n");
  CHECK(computed(job, 1).sent == 0);
  const auto step = computed(job, 2);
  const double buffers = step.use.parameters - step.use.gradients;
  REQUIRE(buffers > 0);
  CHECK(static_cast<double>(*step.sent) == step.use.gradients + buffers / 2);
}

TEST_CASE("a plan stands where its steps cannot be measured, and says why") {
  const TrainingJob job(job_text);
  const auto plan_with = [&](Errc code) {
    const auto fails = [&](const trainer::SmallJob&) -> trainer::MeasuredStep {
      throw Error(code, "rank 1 failed: ended by signal 9 (KILL)");
    };
    return trainer::plan_step(job.config(), job.datasets().train->layout(), 4, {}, fails);
  };
  const auto plan = plan_with(Errc::peer_lost);
  CHECK_FALSE(plan.time);
  CHECK(plan.reason == "rank 1 failed: ended by signal 9 (KILL)");
  CHECK(plan.use.parameters > 0);
  CHECK_THROWS_AS(plan_with(Errc::usage), Error);
}

TEST_CASE("the median of measured steps is scaled by what ranks compute, and by what they wait for") {
  trainer::MeasuredStep step{.steps = 3};
  step.own = {1, 5, 2};
  step.wait = {2, 1, 1};
  CHECK(step.median(1, 1) == trainer::Seconds(3));
  CHECK(step.median(2, 0) == trainer::Seconds(4));
  CHECK(step.median(0, 3) == trainer::Seconds(3));
}

TEST_CASE("a step has the micro-batches that its samples fill") {
  const auto count = [](std::int64_t samples, int ranks, int micro_batches) {
    trainer::TrainConfig config;
    config.train.global_batch_size = samples;
    config.parallel.micro_batches = micro_batches;
    return trainer::micro_batches_of_step(config, ranks);
  };
  CHECK(count(64, 4, 8) == 8);
  CHECK(count(16, 4, 8) == 4);  // four samples a rank
  CHECK(count(20, 4, 4) == 3);  // 2, 2 and 1 of five
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
  CHECK(sent({.zero = 3, .sharded = {.reshard_after_forward = false}}, 3, 4) == 5400);
  // Each micro-batch of a pipeline's stage, of which a step may have fewer than the settings; buffers are sent once.
  CHECK(sent({.zero = 2, .micro_batches = 8}, 3, 4) == 3600);
  CHECK(sent({.zero = 3, .micro_batches = 8}, 3, 4) == 8100);
  CHECK(sent({.zero = 3, .sharded = {.reshard_after_forward = false}, .micro_batches = 8}, 3, 4) == 3600);
  // The bytes are 600 each among 2 ranks, then an all-reduce of 600 between 2 replicas.
  CHECK(sent({.zero = 2, .sharded = {.shard_group = 2}}, 1, 4) == 1800);
  CHECK(sent({.zero = 3, .sharded = {.shard_group = 2}}, 1, 4) == 2400);
  for (const auto* hook : {"fp16", "bf16", "fp16+allreduce", "fp16+bf16"}) CHECK(sent({.hook = hook}, 1, 2) == 600);
  CHECK(sent({.hook = "int8"}, 1, 2) == 300);
  CHECK(sent({.hook = "fp16", .zero = 1}, 1, 2) == 900);  // a reduce-scatter of 300 and a gather of 600
  CHECK(sent({.hook = "int8", .zero = 1}, 1, 2) == 900);  // an average of 300 and the gather
  CHECK(sent({.hook = "int4"}, 1, 2) == 159);             // 300 numbers of 4.25 bits
  CHECK(sent({.hook = "topk", .hook_options = {.topk_fraction = 0.1}}, 1, 2) == 240);  // 30 of them with their places,
  CHECK(sent({.hook = "topk", .hook_options = {.topk_fraction = 0.1}}, 1, 4) == 720);  // to each other rank
  for (const auto* hook : {"int8_channel", "powersgd", "powersgd+fp16", "fp16+batched_powersgd"})
    CHECK_FALSE(trainer::bytes_sent_in_step({.hook = hook}, {.parameters = 1200}, 1, 2));
  const auto with_buffers = [](const trainer::TrainConfig::Parallel& config) {
    return trainer::bytes_sent_in_step(config, {.parameters = 0, .buffers = 100}, 3, 2).value();
  };
  CHECK(with_buffers({}) == 50);
  CHECK(with_buffers({.zero = 2}) == 150);
  CHECK(with_buffers({.zero = 2, .micro_batches = 3}) == 50);
  CHECK(with_buffers({.ddp = {.broadcast_buffers = false}}) == 0);
}

TEST_CASE("a plan's table has a line for each figure, and says where it comes from") {
  trainer::StepPlan plan{.ranks = 4,
                         .use = {.parameters = 1 << 20, .gradients = 1 << 19},
                         .sent = 1234,
                         .is_computed = true,
                         .activations_are_measured = true,
                         .time = trainer::Seconds(0.0125),
                         .measured_ranks = 2,
                         .steps = 20};
  plan.blocks = plan.computed_blocks = 4;
  auto lines = trainer::plan_table(plan);
  REQUIRE(lines.size() == 8);
  CHECK(lines[0] == "a step, per rank                    4 ranks");
  CHECK(lines[1] == "parameters and buffers              1048576 bytes       1.00 MiB");
  CHECK(lines[5] == "sent                                   1234 bytes       0.00 MiB");
  CHECK(trainer::plan_table({})[5] == "sent                         not predicted with this parallel.hook");
  CHECK(lines[6] == "time                                 12.500 ms, the median of 20 steps with 2 ranks");
  CHECK(lines[7] == "memory and bytes are computed, activations are measured");

  plan = {.ranks = 1024,
          .use = {.averages = 1, .gathered = 2},
          .is_computed = true,
          .computed_blocks = 6,
          .blocks = 87,
          .reason = "too large"};
  lines = trainer::plan_table(plan);
  REQUIRE(lines.size() == 10);
  CHECK(lines[4].starts_with("averages "));
  CHECK(lines[6].starts_with("gathered, at the peak "));
  CHECK(lines[8] == "time                           not measured: too large");
  CHECK(lines[9] == "memory and bytes are computed from 6 of 87 blocks, which are alike");
  CHECK(trainer::plan_table({}).back() == "memory and bytes are those of the measured steps");
}
