#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"
#include "worker/parallel/forms/stage_pass.h"
#include "worker/parallel/sharding/sharded_buckets.h"
#include "worker/reducer/comm_hook.h"
#include "worker/reducer/transfer.h"

namespace ddprun {

// The most bytes that a rank held at a time.
struct ModelPeaks {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
};

// Data parallelism as a training loop sees it, whatever part of the model each rank keeps. A step: zero_grad(), passes
// of forward() and a backward pass, an update of the parameters that this rank updates, parameters_updated().
//
// Ownership: model and groups outlive it; what it returns by reference or pointer is its own.
// Threads: one at a time. All ranks call the same methods in the same order.
// Errors: those of the groups, from each method that communicates. A step in which one throws is not complete:
//   parameters and buffers are what they were before it, or have to be copied from a rank that has them.
class DataParallelism {
 public:
  virtual ~DataParallelism() = default;

  virtual Variable forward(const Variable& input) = 0;
  // Does what forward() does before the model runs, for a caller that runs the model another way, such as DataParallel.
  virtual void prepare_forward() {}
  // Replaces a forward and a backward pass at a rank that has no samples for this one.
  virtual void join_pass() = 0;
  // Replaces a backward pass, after prepare_forward(): reduces the gradients of passes that were held.
  virtual void join_backward() { join_pass(); }
  // Makes a pass through a stage of the model between prepare_forward() and join_backward(), for a pipeline, which has
  // passes of several micro-batches under way. compute: the pass, which is left out if this rank has no samples.
  virtual void run_pass(const StagePass& pass, const std::function<void()>& compute) {
    const auto local = pass.reduces ? nullptr : hold_reduction();
    if (pass.has_samples) compute();
  }
  // Returns whether every pass communicates, so that all ranks need equally many in a step. Otherwise passes while the
  // result of hold_reduction() exists stay local.
  virtual bool reduces_every_pass() const { return false; }
  virtual std::shared_ptr<void> hold_reduction() { return nullptr; }

  // Returns whether every rank has the values of all its parameters between two steps, and not only parts of them.
  virtual bool has_whole_parameters() const { return true; }
  // Returns what this rank updates if that is a part of the parameters (ParameterShards); null: it updates all.
  virtual const ShardedBuckets* sharded_buckets() const { return nullptr; }
  // The ranks among which they are sharded.
  virtual ProcessGroup& shard_group() const = 0;
  // Those among which slices of parameters are sharded that only some of these ranks have, such as experts.
  virtual ProcessGroup& shard_group_of_slices() const { return shard_group(); }
  // The ranks that have the same parts, one in each shard group; null if there is one shard group.
  virtual ProcessGroup* replica_group() const { return nullptr; }
  // The sum of ProcessGroup::bytes_sent() of the groups that this object has formed for itself.
  virtual std::uint64_t bytes_sent() const { return 0; }

  // Returns whether parameters and the state of the optimizer differ from rank to rank between steps, by design.
  virtual bool ranks_differ() const { return false; }
  // Parameters of the model, by path, that each rank trains by itself: their gradients are not averaged.
  virtual std::vector<std::string> own_parameters() const { return {}; }
  // While the result exists, every rank's model is the one that is evaluated and saved, if that is not what the rank
  // trains. Collective.
  virtual std::shared_ptr<void> evaluated_model() { return nullptr; }

  // Sets the gradients to zero.
  virtual void zero_grad() = 0;
  // To be called after an update: the next pass sees the parameters of all ranks.
  virtual void parameters_updated() = 0;
  // Copies rank 0's buffers to all ranks.
  virtual void sync_buffers() = 0;

  // Calls visit(name, value) for each parameter, whole and at every rank, in the model's order. Not within a pass.
  using Visitor = std::function<void(const std::string& name, const Tensor& value)>;
  virtual void visit_parameters(const Visitor& visit) = 0;
  // To be called when what all ranks update has the values of a saved state: the next pass sees them.
  virtual void parameters_restored() { parameters_updated(); }

  // Returns what only this rank has and a checkpoint needs: CommHook::state(), and tensors that are each rank's own.
  virtual std::vector<HookState> hook_state() { return {}; }

  // Returns the peaks since the last call; zeros mean no more than between two steps.
  virtual ModelPeaks take_peaks() { return {}; }

  // Total time that passes have waited for other ranks and the network, and that they have spent on starting
  // reductions.
  virtual std::chrono::nanoseconds waited() const = 0;
  virtual std::chrono::nanoseconds starting() const = 0;
  // Appends reductions to *into at the end of each pass; null: none. It outlives this object or the next call.
  virtual void record_transfers(std::vector<Transfer>* into) = 0;
};

}  // namespace ddprun
