// The time that the ranks of a pipeline wait (the bubble), beside the papers' formulas and the simulation, with stages
// of equal cost. Stages wait rather than compute, as a rank with a device of its own would: so there can be more ranks
// than processors.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "worker/autograd/function.h"
#include "worker/autograd/ops.h"
#include "worker/nn/layers/container.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/pipeline/rank_pipeline.h"
#include "worker/parallel/forms/pipeline/simulation.h"
#include "worker/parallel/mesh/device_mesh.h"
#include "tests/bench/median.h"
#include "tests/bench/subcommand.h"
#include "tests/support/run_ranks.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;
using pipeline::ScheduleKind;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Options {
  std::vector<int> ranks{2, 4};
  std::vector<int> micro_batches{4, 8};
  int pass_us = 16000;
  int steps = 3;
};

// The identity, whose three passes (forward, gradient of the input, gradient of the weight) take the same time each.
Variable wait_in_each_pass(const Variable& input, const Variable& weight, const std::function<void()>& wait) {
  const autograd::Function operation("wait", {input, weight});
  wait();
  return operation.record(input.value().clone(), {}, [wait, shape = weight.shape()](autograd::Backward& backward) {
    for (const std::size_t of : {0, 1}) {
      if (!backward.wants(of)) continue;
      wait();
      backward.add(of, of == 0 ? backward.grad().clone() : Tensor::zeros(shape));
    }
  });
}

class WaitingLayer : public nn::Module {
 public:
  explicit WaitingLayer(std::function<void()> wait)
      : wait_(std::move(wait)), weight_(register_parameter("weight", Tensor::zeros({1}))) {}

 private:
  Variable forward(const Variable& input) override { return wait_in_each_pass(input, weight_, wait_); }

  const std::function<void()> wait_;
  const Variable weight_;
};

struct Row {
  const char* name;
  ScheduleKind kind;
  int virtual_stages;
};
constexpr Row rows[] = {
    {"gpipe", ScheduleKind::gpipe, 1},
    {"1f1b", ScheduleKind::one_forward_one_backward, 1},
    {"interleaved", ScheduleKind::interleaved, 2},
    {"zero_bubble", ScheduleKind::zero_bubble, 1},
};

// Returns (p - 1) / (m + p - 1) or its form for another schedule; docs/parallelism.md has their sources.
double formula(const Row& row, int p, int m) {
  if (row.kind == ScheduleKind::interleaved) return (p - 1.0) / (row.virtual_stages * m + p - 1.0);
  if (row.kind == ScheduleKind::zero_bubble) return (p - 1.0) / (3.0 * m + p - 1.0);
  return (p - 1.0) / (m + p - 1.0);
}

struct Step {
  double seconds = 0;  // time of the rank that takes longest
  double busy = 0;     // time of all ranks
};

// Returns all steps after the first.
std::vector<Step> run_steps(const Row& row, int ranks, int micro_batches, const Options& options) {
  std::mutex mutex;
  std::vector<Step> steps(static_cast<std::size_t>(options.steps) + 1);
  testing::run_ranks(ranks, [&](ProcessGroup& world) {
    double busy = 0;  // a sleep is longer than requested
    const auto wait = [&busy, pass = std::chrono::microseconds(options.pass_us / row.virtual_stages)] {
      const auto begin = Clock::now();
      std::this_thread::sleep_for(pass);
      busy += seconds_since(begin);
    };
    const DeviceMesh mesh(world, {{"pipeline", ranks}, {"data", 1}});
    nn::Sequential model;
    std::vector<std::size_t> cuts;
    for (int s = 0; s < ranks * row.virtual_stages; ++s) {
      model.add(std::make_unique<WaitingLayer>(wait));
      if (s > 0) cuts.push_back(static_cast<std::size_t>(s));
    }
    pipeline::RankPipeline pipeline(
        model, cuts,
        plan_schedule(row.kind, {.ranks = ranks, .micro_batches = micro_batches, .virtual_stages = row.virtual_stages}),
        mesh.group("pipeline"));
    DistributedDataParallel ddp(model, mesh.group("data"), {.stages = pipeline.tensors_of(pipeline.group().rank())});
    for (auto& step : steps) {
      ddp.zero_grad();
      busy = 0;
      world.barrier()->wait();
      const auto begin = Clock::now();
      pipeline.train({.micro_batches = micro_batches,
                      .samples = [](int) { return std::int64_t{1}; },
                      .input =
                          [](int) {
                            return Variable(Tensor::zeros({1, 8}), true);
                          },
                      .loss = [](int, const Variable& result) { return sum(result); }},
                     ddp);
      const std::lock_guard lock(mutex);
      step.seconds = std::max(step.seconds, seconds_since(begin));
      step.busy += busy;
    }
  });
  steps.erase(steps.begin());
  return steps;
}

void run(const Options& options, bool json) {
  if (!json)
    fmt::print("{:<14}{:>6}{:>15}{:>10}{:>10}{:>10}{:>10}\n", "schedule", "ranks", "micro-batches", "step ms", "bubble",
               "formula", "ratio");
  for (const Row& row : rows)
    for (const int ranks : options.ranks)
      for (const int micro_batches : options.micro_batches) {
        std::vector<double> bubbles, seconds;
        for (const Step& step : run_steps(row, ranks, micro_batches, options)) {
          bubbles.push_back(1 - step.busy / ranks / step.seconds);
          seconds.push_back(step.seconds);
        }
        const double bubble = median(bubbles), expected = formula(row, ranks, micro_batches);
        if (json)
          fmt::print(R"({{"schedule": "{}", "ranks": {}, "micro_batches": {}, "step_ms": {:.2f}, "bubble": {:.4f}, )"
                     R"("formula": {:.4f}}})"
                     "\n",
                     row.name, ranks, micro_batches, median(seconds) * 1e3, bubble, expected);
        else
          fmt::print("{:<14}{:>6}{:>15}{:>10.1f}{:>10.3f}{:>10.3f}{:>10.2f}\n", row.name, ranks, micro_batches,
                     median(seconds) * 1e3, bubble, expected, bubble / expected);
      }
}

}  // namespace

Run pipeline_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "A stage's forward pass, its gradient of the input and that of the weight take --pass-us each, in which it "
      "waits\n"
      "rather than computes. bubble: the share of a step, the median, that is none of these passes; formula: that of "
      "the\n"
      "schedule's paper; ratio: of the two.");
  subcommand.add_option("--ranks", options->ranks, "numbers of ranks")->delimiter(',')->capture_default_str();
  subcommand.add_option("--micro-batches", options->micro_batches, "numbers of micro-batches")
      ->delimiter(',')
      ->capture_default_str();
  const auto add = [&](const char* name, int& value, const char* help) {
    subcommand.add_option(name, value, help)->check(CLI::PositiveNumber)->capture_default_str();
  };
  add("--pass-us", options->pass_us, "microseconds of a pass");
  add("--steps", options->steps, "steps of each row");
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
