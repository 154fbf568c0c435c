#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/data/dataset.h"
#include "worker/parallel/forms/data/data_parallel.h"
#include "worker/parallel/forms/data/sync_batch_norm.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/parallel/mesh/device_mesh.h"
#include "worker/parallel/sharding/parameter_placements.h"
#include "worker/reducer/hooks/shard_sum_hook.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/axis_forms.h"
#include "worker/trainer/session/mesh_groups.h"
#include "worker/trainer/session/model_pipeline.h"
#include "worker/trainer/session/update_gate.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// The arguments of the forms of parallel training. All of it outlives them.
struct FormsContext {
  const TrainConfig& config;
  const data::SampleLayout& layout;  // that of the training samples
  const tasks::Task& task;
  TrainState& state;
  ProcessGroup& group;
};

// The forms of parallel training that the settings ask for, applied to the model of a state in the order of the
// members, and their consequences for a session, which so has to ask for none by its name.
//
// Threads: one at a time; the constructor is collective.
// Errors: Errc::usage naming key and value; Errc::unsupported for a state that has made steps in another group whose
//   ranks each had a part.
class ParallelForms {
 public:
  explicit ParallelForms(const FormsContext& context);
  ParallelForms(const ParallelForms&) = delete;
  ParallelForms& operator=(const ParallelForms&) = delete;

  DeviceMesh mesh;
  const MeshGroups groups;
  const AxisForms axes;                         // those on the axes of model_axes() but the pipeline's
  const std::unique_ptr<tasks::Task> own_task;  // replaces the job's if ranks have parts of the scores
  const tasks::Task& task;
  const std::unique_ptr<pipeline::DevicePipeline> device_pipeline;  // set with parallel.micro_batches and devices
  const std::vector<pipeline::Layer> layers;              // set with parallel.pipeline if their times are needed
  std::optional<pipeline::StageBalancer> stage_balancer;  // set with parallel.pipeline and balance
  const std::unique_ptr<UpdateGate> gate;                 // set where the host does not wait for gradients
  const std::unique_ptr<pipeline::PipelinedDataParallel> pipelined;  // set with parallel.pipeline
  ShardSumHook* shard_sums = nullptr;                                // of_passes has it; set with train.shards
  const std::unique_ptr<DataParallelism> of_passes;                  // set without parallel.pipeline
  DataParallelism& parallelism;                                      // one of these two
  const std::unique_ptr<DataParallel> replicas;                      // set with parallel.strategy = data_parallel
  std::optional<SyncBatchNorm> sync_batch_norm;

  // By what the sum of all gradients is divided: their average is one over the ranks that have gradients of their own.
  int gradient_divisor() const { return shard_sums ? 1 : groups.gradients.size(); }
  // Returns the group of a tensor's replicas: the ranks that have gradients of their own of the same part of it.
  ProcessGroup& replicas_of(const std::string& parameter) const {
    return axes.is_expert(parameter) ? groups.gradients_of_experts : groups.gradients;
  }
  // The model's device, where its inputs are, and the one where losses are computed.
  Device device() const { return device_; }
  Device targets_device() const { return targets_device_; }

  // Returns whether no rank before it has the same part of the model's layers, if it is a pipeline's.
  bool is_first_of_stage() const {
    return mesh.all().rank() % (mesh.all().size() / (groups.stages ? groups.stages->size() : 1)) == 0;
  }
  // Returns whether ranks may have shares of a step by their speed; in a pipeline layers move instead.
  bool allows_shares() const { return !pipelined; }
  // Returns whether all ranks need equally many micro-batches in a step.
  bool needs_equal_batches() const { return sync_batch_norm.has_value(); }
  // The time that this rank has waited for other ranks and the network.
  std::chrono::nanoseconds waited() const;
  std::uint64_t bytes_sent() const;  // the sum of ProcessGroup::bytes_sent() of all groups

 private:
  pipeline::StageParallelism data_form(const FormsContext& of);

  const Device device_;
  const Device targets_device_;
};

}  // namespace ddprun::trainer
