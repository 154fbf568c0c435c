#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "worker/comm/process_group.h"
#include "worker/recovery/recovery.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/preemption.h"
#include "worker/trainer/report/progress.h"
#include "worker/trainer/report/summary.h"
#include "worker/trainer/session/shared_items.h"
#include "worker/trainer/state/datasets.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// One rank's part of a training job: model, optimizer, data, checkpoints and metrics as the configuration asks for. All
// ranks of the group make one and call run() once; both are collective. If checkpoint.dir holds a checkpoint, run()
// resumes from it at the exact sample. When any rank has received a preemption request, all stop after the same step,
// once rank 0 has saved it; this needs a checkpoint.dir.
//
// Ownership: datasets and the context's parts outlive the trainer, which owns the rest. Threads: one at a time.
// Errors: what the parts throw, Errc::mismatch from train.check_replicas, and Errc::unsupported for a loss that is not
//   finite, before its step is saved; the object cannot be used afterwards.
class Trainer {
 public:
  struct Context {
    ProcessGroup* group;  // null: this process joins a running job, and recovery forms its group
    Progress& progress;
    std::int64_t generation = 0;                     // that of the job, for the record
    const PreemptionListener* preemption = nullptr;  // null: this rank takes no preemption requests
    const plugin::Registry* plugin = nullptr;        // set if model.plugin is given
    const SharedItems* shared = nullptr;             // see TrainJob::shared
    Device device{};                                 // train_device()
    TrainState* prepared_state = nullptr;            // that before the first step, taken over; null: it is made
    std::string training_record = {};                // WorkerEnv::training_record
    Recovery* recovery = nullptr;                    // if null, a failure of the group ends the run
    bool first_of_host = false;                      // see ObserverContext

    // Fails the operations of the process's present group: with recovery not always the first one.
    void abort(const std::string& reason) const;
  };

  // deciding: settings_that_decide().
  Trainer(const TrainConfig& config, std::map<std::string, std::string> deciding, const Datasets& datasets,
          Context context);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  Summary run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
