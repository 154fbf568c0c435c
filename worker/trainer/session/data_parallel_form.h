#pragma once

#include "worker/parallel/forms/pipeline/pipelined_data_parallel.h"
#include "worker/reducer/hooks/shard_sum_hook.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/axis_forms.h"
#include "worker/trainer/session/mesh_groups.h"
#include "worker/trainer/session/update_gate.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Returns the data parallelism that the settings ask for, of the stages of a pipeline or of a whole model, which is the
// only stage of a rank then. gate: null if the host waits for gradients. shard_sums: receives the hook for
// train.shards, which the data parallelism owns, when it is made.
//
// Ownership: the arguments outlive the result and what it makes.
// Errors: making it throws Errc::usage naming key and value.
pipeline::StageParallelism data_parallel_form(const TrainConfig& config, TrainState& state, const MeshGroups& groups,
                                              const AxisForms& axes, const UpdateGate* gate, ShardSumHook*& shard_sums);

}  // namespace ddprun::trainer
