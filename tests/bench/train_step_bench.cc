// One training step of each model, on one or several ranks of one thread each, beside the floor of its arithmetic in
// the same run. The parts alternate, so that a busy moment of the machine hits them all.
#include <algorithm>
#include <fstream>
#include <memory>
#include <omp.h>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/deadline.h"
#include "common/standard_output.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/ops/conv.h"
#include "worker/comm/collectives.h"
#include "worker/comm/init.h"
#include "worker/comm/spawn.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/sharding/parameter_shards.h"
#include "tests/bench/latency.h"
#include "tests/bench/subcommand.h"
#include "tests/bench/train_step/floor.h"
#include "tests/bench/train_step/memory_floor.h"
#include "tests/bench/train_step/workload.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> models{"cnn", "mlp", "gpt_nano"};
  std::vector<int> ranks{1};
  std::int64_t batch = 0;
  std::string precision = "fp32";
  int zero = 0;
  double seconds = 3;
};

struct Times {
  Latencies forward, backward, optimizer, step;
};

constexpr int block = 4;    // steps before the next part's turn
constexpr int warm_up = 5;  // steps of warm-up

// Returns the process's own memory, without the memory that it shares with its parent.
double peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

template <class Forward, class Update>
void take_step(TrainingStep& training, Times& times, DType precision, Forward forward, Update update) {
  const auto start = Clock::now();
  const WinogradScope winograd;
  const autograd::AutocastScope autocast(precision);
  const Variable loss = training.loss(forward);
  const auto forward_done = Clock::now();
  loss.backward();
  const auto backward_done = Clock::now();
  update();
  const auto end = Clock::now();
  times.forward.add(forward_done - start);
  times.backward.add(backward_done - forward_done);
  times.optimizer.add(end - backward_done);
  times.step.add(end - start);
}

// One rank's measurements: its steps in the group, steps of its own beside equally busy neighbours, and the floor.
class Measurement {
 public:
  Measurement(const Workload& workload, DType precision, int zero, ProcessGroup& group)
      : group_(group), precision_(precision), together_(workload) {
    std::size_t parameters = 0;
    for (const auto& [name, parameter] : together_.model().named_parameters())
      parameters += static_cast<std::size_t>(parameter.value().numel());
    traffic_ = state_traffic(parameters, workload.optimizer, group.size(), zero);
    if (group.size() > 1) ddp_.emplace(together_.model(), group, DdpOptions{.shard_gradients = zero > 0});
    if (ddp_ && zero > 0) together_.update_only(shards_.emplace(*ddp_->sharded_buckets()).parameters());
    Times unused;
    for (int i = 0; i < warm_up; ++i) {
      step_together(unused);
      // This is only the memory of the group's model: the other one, and the floor, allocate theirs later.
      rss_mib_ = peak_rss_mib();
    }
    if (ddp_) {
      alone_.emplace(workload);
      step_alone();
    }
    floor_.emplace(workload.arithmetic);
    floor_->run();
    memory_floor_.emplace(traffic_);
    memory_floor_->run();
  }

  void run_for(double seconds) {
    const auto end =
        Deadline::in(std::chrono::duration_cast<Deadline::Duration>(std::chrono::duration<double>(seconds)));
    do {
      for (int i = 0; i < block; ++i) step_together(times_);
      if (ddp_) {
        group_.barrier({.blocking = true});
        for (int i = 0; i < block; ++i) alone_times_.add(timed([this] { step_alone(); }));
        group_.barrier({.blocking = true});
      }
      floor_times_.add(timed([this] { floor_->run(); }));
      group_.barrier({.blocking = true});
      memory_times_.add(timed([this] { memory_floor_->run(); }));
    } while (!agreed(end.expired()));
  }

  Times& times() { return times_; }
  double alone_ms() { return mean_over_ranks(alone_times_); }
  double floor_ms() { return mean_over_ranks(floor_times_); }
  double memory_floor_ms() { return mean_over_ranks(memory_times_); }
  const StateTraffic& traffic() const { return traffic_; }
  double step_ms() { return mean_over_ranks(times_.step); }
  double rss_mib() const { return rss_mib_; }

 private:
  template <class Act>
  static std::chrono::nanoseconds timed(Act act) {
    const auto start = Clock::now();
    act();
    return Clock::now() - start;
  }

  void step_together(Times& times) {
    const auto forward = [this](const Variable& x) { return ddp_ ? ddp_->forward(x) : together_.model()(x); };
    take_step(together_, times, precision_, forward, [this] {
      together_.update();
      if (ddp_) ddp_->parameters_updated();
    });
  }
  void step_alone() {
    Times unused;
    const auto forward = [this](const Variable& x) { return alone_->model()(x); };
    take_step(*alone_, unused, precision_, forward, [this] { alone_->update(); });
  }

  // Returns rank 0's answer at all ranks.
  bool agreed(bool own) {
    std::vector<std::int64_t> answer{own ? 1 : 0};
    group_.broadcast(span_of(answer), 0, {.blocking = true});
    return answer[0] != 0;
  }

  // Returns the mean of the ranks' medians, in milliseconds.
  double mean_over_ranks(Latencies& latencies) {
    std::vector<double> sum{latencies.quantile_us(0.5) / 1e3};
    allreduce(group_, sum);
    return sum[0] / group_.size();
  }

  ProcessGroup& group_;
  DType precision_;
  TrainingStep together_;
  StateTraffic traffic_;
  std::optional<DistributedDataParallel> ddp_;
  std::optional<ParameterShards> shards_;  // with zero = 1
  std::optional<TrainingStep> alone_;      // with several ranks
  std::optional<ArithmeticFloor> floor_;
  std::optional<MemoryFloor> memory_floor_;
  Times times_;
  Latencies alone_times_, floor_times_, memory_times_;
  double rss_mib_ = 0;
};

void print_head() {
  fmt::print("{:<10}{:>6}{:>6}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>9}{:>8}{:>12}{:>8}{:>9}\n", "model", "prec",
             "ranks", "batch", "fwd_ms", "bwd_ms", "opt_ms", "step_ms", "floor_ms", "x floor", "mem_mb", "mem_ms",
             "items_per_s", "share", "rss_mib");
}

void print(const Workload& workload, const std::string& precision, Measurement& measured, int ranks, bool json,
           bool speaks) {
  const double step = measured.step_ms(), floor = measured.floor_ms(), alone = measured.alone_ms();
  const double memory = measured.memory_floor_ms();
  const double share = ranks > 1 ? alone / step : 1;
  if (!speaks) return;
  const auto median_ms = [](Latencies& latencies) { return latencies.quantile_us(0.5) / 1e3; };
  Times& times = measured.times();
  const auto text = fmt::runtime(
      json
          ? R"({{"model": "{}", "precision": "{}", "ranks": {}, "batch": {}, "forward_ms": {:.3f}, )"
            R"("backward_ms": {:.3f}, "optimizer_ms": {:.3f}, "step_ms": {:.3f}, "floor_ms": {:.3f}, )"
            R"("over_floor": {:.3f}, "memory_mb": {:.1f}, "memory_ms": {:.3f}, "items_per_s": {:.0f}, "share_of_independent": {:.4f}, "rss_mib": {:.1f}}})"
            "\n"
          : "{:<10}{:>6}{:>6}{:>6}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>8.2f}{:>9.1f}{:>8.2f}{:>12.0f}{:>8.3f}{:>"
            "9.1f}\n");
  fmt::print(text, workload.name, precision, ranks, workload.batch, median_ms(times.forward), median_ms(times.backward),
             median_ms(times.optimizer), step, floor, step / floor,
             static_cast<double>(measured.traffic().total()) / 1e6, memory,
             static_cast<double>(ranks * workload.items()) * 1e3 / step, share, measured.rss_mib());
  flush_standard_output();
}

DType dtype_of(const std::string& precision) {
  if (precision == "bf16") return DType::bfloat16;
  return precision == "fp16" ? DType::float16 : DType::float32;
}

void run_rank(const WorkerEnv& env, const Options& options, const std::string& model, int ranks, bool json) {
  ::omp_set_num_threads(1);
  const auto world = init_process_group({.env = env});
  const Workload workload = workload_named(model, options.batch);
  Measurement measurement(workload, dtype_of(options.precision), options.zero, world->group());
  measurement.run_for(options.seconds);
  print(workload, options.precision, measurement, ranks, json, env.rank == 0);
}

void run(const Options& options, bool json) {
  for (const std::string& model : options.models) workload_named(model);
  if (!json) print_head();
  flush_standard_output();
  for (const std::string& model : options.models)
    for (const int ranks : options.ranks)
      spawn(ranks, [&](const WorkerEnv& env) { run_rank(env, options, model, ranks, json); });
}

}  // namespace

Run train_step_bench(CLI::App& subcommand) {
  auto options = std::make_shared<Options>();
  subcommand.footer(
      "One thread a rank, random data, medians. floor_ms: the step's matrix products and convolutions alone, straight\n"
      "through oneDNN in its preferred layouts. mem_mb: what a rank moves in memory beside their operands (gradients,\n"
      "their reduction, the update); mem_ms: how long that takes, at all ranks at once. share: the rate of the ranks\n"
      "together as a share of what as many independent jobs reach beside each other. rss_mib: peak of one rank, "
      "before\n"
      "the other parts take memory. Measure on a quiet machine.");
  subcommand
      .add_option("--model", options->models, "models, each a row: cnn, mlp, mlp_sgd, gpt_nano, gpt_small, resnet18")
      ->delimiter(',');
  subcommand.add_option("--ranks", options->ranks, "ranks, each a row")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--precision", options->precision, "fp32, or autocast to bf16 or fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  subcommand.add_option("--zero", options->zero, "1: ranks divide the optimizer's state and its work (ZeRO stage 1)")
      ->check(CLI::IsMember({0, 1}))
      ->capture_default_str();
  subcommand.add_option("--batch", options->batch, "samples a step and rank (default: the model's own)")
      ->check(CLI::PositiveNumber);
  subcommand.add_option("--seconds", options->seconds, "how long each row is measured")->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
