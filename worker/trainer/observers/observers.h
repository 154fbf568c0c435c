#pragma once

#include <memory>

#include "worker/checkpoint/checkpoint.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/observer.h"
#include "worker/trainer/preemption.h"
#include "worker/trainer/recovery/part_copies.h"
#include "worker/trainer/report/progress.h"
#include "worker/trainer/report/summary.h"

namespace ddprun::trainer {

// The arguments of the functions that make observers. All of it outlives them.
struct ObserverContext {
  const TrainConfig& config;
  Progress& progress;
  checkpoint::Checkpoints* checkpoints;  // null if the run has no folder of them
  const PreemptionListener* preemption;  // null if this rank takes no requests
  Summary& summary;                      // to be filled in
  std::string training_record = {};      // WorkerEnv::training_record
  bool wants_standby = false;            // see TrainingRecord
  std::int64_t epoch_samples = 0;        // those in the training data
  PartCopies* copies = nullptr;          // set if the run can recover, and ranks have parts of the state
  bool first_of_host = false;            // true for the one rank of this host that writes what each host has
};

// The observers that the settings ask for. The table in observers.cc has them in the order of their effects.
std::unique_ptr<Observer> make_observers(const ObserverContext& context);

// Each is in a file of its own, and returns null if the settings ask for none. all: gets an observer's own events.
using ObserverMaker = std::unique_ptr<Observer>(const ObserverContext& context, Observer& all);
ObserverMaker make_replica_check, make_ledger_observer, make_metrics_observer, make_tensorboard_observer,
    make_progress_observer, make_record_observer, make_slow_rank_observer, make_profile_observer,
    make_skipped_steps_observer, make_finite_check, make_evaluation_observer, make_memory_observer,
    make_checkpoint_observer, make_peer_observer, make_preemption_observer, make_thread_observer;

}  // namespace ddprun::trainer
