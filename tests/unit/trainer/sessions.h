#pragma once

#include <memory>
#include <utility>

#include "worker/tasks/tasks.h"
#include "worker/trainer/session/train_session.h"
#include "tests/numerics/training_job.h"

namespace ddprun::testing {

// The state of one rank of a job, and the parts for sessions of it. The job outlives it.
struct Replica {
  explicit Replica(const TrainingJob& job, Device device = {})
      : config(job.config()),
        datasets(job.datasets()),
        task(tasks::make_task("auto", {.layout = datasets.train->layout()})),
        state(trainer::make_train_state(config, {}, datasets.train->layout(), *task, 0, {}, device)) {}

  std::unique_ptr<trainer::TrainSession> session(ProcessGroup& group, trainer::TrainSession::ToldTimes told = {}) {
    return std::make_unique<trainer::TrainSession>(
        trainer::TrainJob{.config = config, .datasets = datasets, .task = *task}, state, group, std::move(told));
  }

  const trainer::TrainConfig& config;
  const trainer::Datasets& datasets;
  std::unique_ptr<tasks::Task> task;
  trainer::TrainState state;
};

}  // namespace ddprun::testing
