#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/parallel/forms/stage_pass.h"
#include "worker/parallel/sharding/sharded_buckets.h"
#include "worker/reducer/bucketing.h"

namespace ddprun {

// Parameters of which each rank has a slice, such as its experts, and the ranks that have the same slices. The gradient
// of a slice at a rank is that of the samples of all ranks that have the others.
struct SlicedParameters {
  std::vector<std::string> names;
  ProcessGroup* replicas = nullptr;  // outlives the data parallelism; null if there are none
};

struct ShardedOptions {
  BucketLimits limits;  // those of the buckets of gradients; with shard_parameters units of the model replace buckets
  // True for ZeRO-3: each rank keeps only its part of the parameters, and gathers a unit (shard_units.h) for its calls.
  bool shard_parameters = false;
  // With shard_parameters: if true, a unit is freed after its forward pass and gathered again for its backward pass;
  // otherwise it stays from the one to the other, and in a pipeline from its first pass of a step to the end of the
  // step.
  bool reshard_after_forward = true;
  // The number of ranks of a shard group; 0: all. Shard groups are replicas of each other (mesh/device_mesh.h). With
  // sliced parameters each has all slices.
  int shard_group = 0;
  bool broadcast_buffers = true;  // like DdpOptions::broadcast_buffers
  // The type of 16 bits to which gradients are rounded for their reduction; none: they are sent as they are.
  std::optional<DType> gradients_as = {};
  // If true, a pass may leave out parameters: each tells the ranks which ones it has reached, and those that no rank
  // has reached in a step have no gradient (ParameterShards::define_gradients()). All ranks call the same modules.
  bool find_unused_parameters = false;
  std::vector<std::string> ignored_parameters = {};  // like DdpOptions::ignored_parameters
  StageTensors stages = {};                          // like DdpOptions::stages
  // These are sharded among the ranks that have the same slices, and all others among all ranks.
  SlicedParameters sliced = {};
};

// The parameters that are sharded with these options, and their buckets. Pure, like that for DdpOptions.
GradientBuckets gradient_buckets(nn::Module& model, const ShardedOptions& options);

// Data parallelism where gradients, and parameters if wanted, are sharded among the ranks: ZeRO stages 2 and 3
// (Rajbhandari et al., 2020; PyTorch's FullyShardedDataParallel). Use with ParameterShards.
//
// Every pass reduces its gradients: ranks need the same number of passes, and an accumulation of gradients takes no
// memory of its own, but communication for each micro-batch. With shard_parameters the order in which modules are
// called is recorded in every pass, and the next unit is gathered while one computes; all ranks call modules in the
// same order. A rank without samples follows the last pass's order; in a first pass the others broadcast it. The passes
// of a pipeline's stages are followed each by itself: those of several micro-batches may be under way.
//
// With sliced parameters every rank makes every pass with samples, as it computes for others (ExpertParallel).
//
// Frozen parameters and buffers stay whole at every rank. A tied parameter belongs to the module that has it first.
// Parameters are used by calls of modules that registered them, and not from elsewhere (Errc::usage).
//
// Ownership: model and group outlive this object, which outlives the tapes of its passes.
// Threads: one at a time. All ranks run the same sequence of passes.
// Errors: the constructor throws Errc::usage for a shard_group that does not divide the ranks. Passes throw the errors
//   of the groups, Errc::usage for a parameter that the loss does not depend on, if none may be left out, and for a
//   first pass for which no rank has samples, and Errc::mismatch for ranks that differ in the order of calls in a first
//   pass for which some have no samples. The object cannot be used afterwards.
class ShardedDataParallel final : public DataParallelism {
 public:
  ShardedDataParallel(nn::Module& model, ProcessGroup& group, const ShardedOptions& options = {});
  ~ShardedDataParallel() override;
  ShardedDataParallel(const ShardedDataParallel&) = delete;
  ShardedDataParallel& operator=(const ShardedDataParallel&) = delete;

  Variable forward(const Variable& input) override;
  void prepare_forward() override;
  void join_pass() override;
  void join_backward() override;
  void run_pass(const StagePass& pass, const std::function<void()>& compute) override;
  bool reduces_every_pass() const override { return true; }
  bool has_whole_parameters() const override;
  void zero_grad() override;
  void parameters_updated() override;
  void sync_buffers() override;
  std::vector<std::string> own_parameters() const override;
  std::vector<HookState> hook_state() override;
  std::shared_ptr<void> evaluated_model() override;
  void visit_parameters(const Visitor& visit) override;
  ModelPeaks take_peaks() override;
  std::chrono::nanoseconds waited() const override;
  std::chrono::nanoseconds starting() const override;
  void record_transfers(std::vector<Transfer>* into) override;

  const ShardedBuckets* sharded_buckets() const override;
  ProcessGroup& shard_group() const override;
  ProcessGroup& shard_group_of_slices() const override;
  ProcessGroup* replica_group() const override;
  std::uint64_t bytes_sent() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;  // at one address: hooks refer to it
};

}  // namespace ddprun
