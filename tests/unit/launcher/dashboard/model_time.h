#pragma once

#include "launcher/dashboard/job_model.h"

// A job of two workers whose time the test advances.
namespace ddprun::testing {

using dashboard::JobModel;
using dashboard::Milliseconds;

struct WatchedModel {
  JobModel model{{.run_id = "shop", .program = "train.cfg", .host = "a", .version = "1.0", .max_restarts = 3},
                 Milliseconds(1'000'000)};
  Milliseconds now{1'000'000};

  static Round round(std::int64_t generation, int workers = 2) {
    return {.generation = generation,
            .restarts_used = static_cast<int>(generation),
            .members = {{.node_id = "a-1", .host = "a", .address = "10.0.0.1", .nproc = workers}},
            .world_size = workers};
  }
  void after(int milliseconds) { now += Milliseconds(milliseconds); }
  void propose(std::int64_t generation, const std::string& reason = "first round") {
    model.round_proposed(now, {.round = round(generation), .reason = reason});
  }
  void start(std::int64_t generation, int workers = 2) {
    model.round_started(now, round(generation, workers));
    std::vector<WorkerReport> reports;
    for (int rank = 0; rank < workers; ++rank)
      reports.push_back({.local_rank = rank, .pid = 100 * generation + rank + 1});
    model.workers(now, reports);
  }
  // The workers' first one has done this many steps, of a second each, in this generation, up to `step`.
  TrainingRecord record(std::int64_t generation, std::int64_t step, std::int64_t steps) const {
    TrainingRecord record{.pid = 100 * generation + 1, .time_ms = now.count(), .step = step, .total_steps = 100};
    record.loss = 1.0 / static_cast<double>(step);
    record.samples_per_s = 64;
    record.seconds_left = static_cast<double>(100 - step);
    record.steps = steps;
    record.first_step_ms = now.count();
    record.samples = 64 * steps;
    record.compute = 0.75 * static_cast<double>(steps);
    record.data = 0.25 * static_cast<double>(steps);
    record.step_counts[6] = steps;
    return record;
  }
  void train(std::int64_t generation, std::int64_t step, std::int64_t steps) {
    model.tick(now);
    model.training(now, 0, record(generation, step, steps));
  }
  // Makes ten steps, and ends a worker half a second after the tenth.
  void fail_after_ten_steps() {
    propose(0);
    after(100);
    start(0);
    after(2'000);
    train(0, 1, 1);
    after(9'000);
    train(0, 10, 10);
    after(500);
    model.failed(
        now, {{.rank = 1, .local_rank = 1, .host = "a", .signal_number = 9, .time_us = 1000 * (now.count() - 200)}});
  }
  // Continues from there to the step that the training had reached.
  void recover() {
    propose(1, "rank 1 on host a failed: SIGKILL; restart 1 of 3");
    after(300);
    start(1);
    after(1'500);
    train(1, 8, 1);
    after(2'000);
    train(1, 10, 3);
  }
};

}  // namespace ddprun::testing
