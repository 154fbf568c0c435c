#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/parallel/forms/stage_pass.h"
#include "worker/parallel/sharding/sharded_buckets.h"
#include "worker/reducer/ddp_passes.h"

namespace ddprun {

// The options of PyTorch's DistributedDataParallel, with its names.
struct DdpOptions {
  BucketLimits limits;
  // A backward pass need not reach every parameter. As in PyTorch, the gradient of a parameter that no rank used stays
  // undefined, so that an optimizer leaves the parameter alone.
  bool find_unused_parameters = false;
  // Copy rank 0's buffers (running statistics) to all ranks at the start of each training forward pass, except those
  // that follow one under no_sync(), as PyTorch does: once a step. If false, they are each rank's own.
  bool broadcast_buffers = true;
  // Every backward pass of a rank reaches the parameters that its first one reached: others are found once, as with
  // find_unused_parameters, and not in every pass.
  bool static_graph = false;
  // Parameters and buffers, by path, that stay each rank's own: neither compared, nor copied, nor averaged. A model is
  // evaluated with rank 0's.
  std::vector<std::string> ignored_parameters = {};
  // Parameters, by path, that are averaged after all others, and not before the gradient of param_to_hook_all_reduce is
  // ready (empty: at any time): for those whose early start would disturb the pass.
  std::vector<std::string> delay_all_reduce_named_params = {};
  std::string param_to_hook_all_reduce = {};
  // Parameters, by path, that share no bucket with others: for a hook that rounds a bucket as a whole, where ranks
  // beside the group have other gradients of these, and the same of all others, which so stay the same there.
  std::vector<std::string> apart = {};
  // ZeRO: a backward pass averages only this rank's part of the gradients, and the others are undefined after it; see
  // parameter_shards.h. The model's parameters move into memory of the group. Not with find_unused_parameters,
  // static_graph or join().
  bool shard_gradients = false;
  // The part of the model that this rank has if a pipeline spreads it over several.
  StageTensors stages = {};
  // The constructor checks that all ranks have the same model, and copies rank 0's parameters and buffers to the
  // others. If false, the user ensures that the ranks have the same model with the same values.
  bool init_sync = true;
  // A tensor of one float32 on the model's CUDA device. If it is defined, the host does not wait for gradients, and an
  // update is queued behind them: it has to leave everything alone if the number is not 0 when it begins
  // (optim::Optimizer::skip_if()), as they are no averages then. Errors of the reduction come out of the next pass.
  Tensor cancelled = {};
};

// The parameters whose gradients are averaged with these options, and their buckets. Pure: it looks only at names,
// shapes and types, so that a rank knows those of the stages that others have.
GradientBuckets gradient_buckets(const nn::Module& model, const DdpOptions& options);

// Data parallelism: every rank holds a replica of the model and trains it on its own part of each batch; the gradients
// are averaged over the ranks.
//
//   auto world = init_process_group({.env = WorkerEnv::from(Environment::capture())});
//   DistributedDataParallel ddp(model, world->group());
//   loss(ddp.forward(inputs), targets).backward();   // returns with averaged gradients
//   optimizer.step();
//
// All ranks begin with the same model and values (DdpOptions::init_sync). Every backward pass from the output of
// forward() then averages the gradients before it returns; communication overlaps with the computation of the pass.
// Under no_sync() gradients accumulate locally.
//
// Ownership: model and group must outlive this object; the model's gradients may outlive it.
// Threads: one at a time. All ranks run the same sequence of passes.
// Errors: the constructor throws Errc::usage for a path in the options that the model does not have, and Errc::mismatch
//   where the models of ranks differ. backward() throws the errors of the group (a lost peer) and Errc::usage for a
//   parameter that the pass did not reach. The object cannot be used afterwards.
class DistributedDataParallel final : public DataParallelism {
 public:
  DistributedDataParallel(nn::Module& model, ProcessGroup& group, const DdpOptions& options = {});
  ~DistributedDataParallel() override;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  Variable forward(const Variable& input) override;
  // The overload for several inputs and outputs; the backward pass may begin at any of the outputs, or at several.
  std::vector<Variable> forward(const std::vector<Variable>& inputs);
  void prepare_forward() override;
  // Replaces a forward and a backward pass at a rank that has no samples for this one: takes part in the pass's
  // communication and adds nothing to the gradients. The others' gradients are still divided by the number of ranks.
  void join_pass() override;
  void join_backward() override;
  nn::Module& module();

  // Uneven inputs: runs body, a loop over this rank's batches; see DdpPasses::join().
  void join(const std::function<void()>& body, const JoinOptions& options = {});

  // Backward passes during its lifetime stay local; the first pass after it reduces the accumulated sums. Scopes nest.
  using NoSync = DdpPasses::NoSync;
  [[nodiscard]] NoSync no_sync();
  std::shared_ptr<void> hold_reduction() override;

  // Replaces the averaging allreduce, by one with compression, say. All ranks set the same hook, between two passes.
  // Throws Errc::usage within a pass. See comm_hook.h; built_in_hooks.h has those that exist.
  void register_comm_hook(std::unique_ptr<CommHook> hook);
  void register_comm_hook(std::function<WorkPtr(const GradBucket&)> hook);
  CommHook& comm_hook();
  std::vector<HookState> hook_state() override;

  std::vector<std::string> own_parameters() const override;
  std::shared_ptr<void> evaluated_model() override;

  const ShardedBuckets* sharded_buckets() const override;  // null without shard_gradients
  ProcessGroup& shard_group() const override;

  void zero_grad() override;
  // With shard_gradients, all ranks get all parts.
  void parameters_updated() override;
  // Ignored parameters are visited with rank 0's values.
  void visit_parameters(const Visitor& visit) override;

  // Copies rank 0's buffers to all ranks: before a distributed evaluation or a checkpoint.
  void sync_buffers() override;

  // Total time that forward (for the buffers) and backward passes have waited for other ranks and the network, apart
  // from their own computation.
  std::chrono::nanoseconds waited() const override;
  // Total time that backward passes have spent on starting the reduction of buckets.
  std::chrono::nanoseconds starting() const override;
  // See Reducer::record_transfers().
  void record_transfers(std::vector<Transfer>* into) override;

 private:
  struct State;

  std::unique_ptr<State> state_;  // at one address: hooks refer to it
};

}  // namespace ddprun
