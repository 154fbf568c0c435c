#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/parallel/divided_parameters.h"
#include "ddprun/worker/reducer/comm_hook.h"
#include "ddprun/worker/reducer/transfer.h"

namespace ddprun {

// Bytes that a rank held at most at a time.
struct ModelPeaks {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
};

// Data parallelism as a training loop sees it, whatever of the model each rank keeps. A step: zero_grad(), passes of
// forward() and a backward pass, an update of what this rank is to update, parameters_updated().
//
// Ownership: model and groups outlive it; what it returns by reference or pointer is its own.
// Threads: one at a time. All ranks call the same methods in the same order.
// Errors: those of the groups, from each method that communicates. A step in which one throws is not complete:
//   parameters and buffers are what they were before it, or have to be copied from a rank that has them.
class DataParallelism {
 public:
  virtual ~DataParallelism() = default;

  virtual Variable forward(const Variable& input) = 0;
  // What forward() does before the model runs: for a caller who runs the model in another way, such as DataParallel.
  virtual void prepare_forward() {}
  // In place of a forward and a backward pass at a rank that has no samples for this one.
  virtual void join_pass() = 0;
  // In place of a backward pass, after prepare_forward(): reduces the gradients of passes that were held.
  virtual void join_backward() { join_pass(); }
  // Whether every pass communicates, so that all ranks need as many in a step. Otherwise passes while the result of
  // hold_reduction() exists stay local.
  virtual bool reduces_every_pass() const { return false; }
  virtual std::shared_ptr<void> hold_reduction() { return nullptr; }

  // What this rank is to update where that is a part of the parameters (ParameterShards); null: all of them.
  virtual const DividedParameters* divided() const { return nullptr; }
  // The ranks among which they are divided.
  virtual ProcessGroup& shard_group() const = 0;
  // The ranks that have the same parts, one in each shard group; null: there is one shard group.
  virtual ProcessGroup* replica_group() const { return nullptr; }
  // ProcessGroup::bytes_sent() of groups that this object has formed for itself.
  virtual std::uint64_t bytes_sent() const { return 0; }

  // Whether parameters and the state of the optimizer differ from rank to rank between steps, by design.
  virtual bool ranks_differ() const { return false; }
  // Parameters, by path, that each rank trains by itself: their gradients are not averaged.
  virtual std::vector<std::string> own_parameters() const { return {}; }
  // While the result exists, every rank's model is the one that is evaluated and saved, if that is not what the rank
  // trains. Collective.
  virtual std::shared_ptr<void> evaluated_model() { return nullptr; }

  // Gradients begin at zero.
  virtual void zero_grad() = 0;
  // After an update: the next pass sees the parameters of all ranks.
  virtual void parameters_updated() = 0;
  // Rank 0's buffers to all ranks.
  virtual void sync_buffers() = 0;

  // Calls visit(name, value) for each parameter, whole and at every rank, in the model's order. Not within a pass.
  using Visitor = std::function<void(const std::string& name, const Tensor& value)>;
  virtual void visit_parameters(const Visitor& visit) = 0;
  // Rank 0's parameters are whole until drop_whole_parameters(). Not within a pass.
  virtual void collect_parameters() {}
  virtual void drop_whole_parameters() {}
  // Rank 0's parameters, written while they were whole there, and its buffers become those of all ranks.
  virtual void distribute_model() = 0;

  // What this rank alone has and a checkpoint has to keep: CommHook::state(), and tensors that are each rank's own.
  virtual std::vector<HookState> hook_state() { return {}; }

  // Since the last call. Zeros: what there is between two steps.
  virtual ModelPeaks take_peaks() { return {}; }

  // Total time that passes have waited for other ranks and the network, and that they have spent on starting
  // reductions.
  virtual std::chrono::nanoseconds waited() const = 0;
  virtual std::chrono::nanoseconds starting() const = 0;
  // Reductions are appended at the end of a pass; null: they are not. into outlives this object or the next call.
  virtual void record_transfers(std::vector<Transfer>* into) = 0;
};

}  // namespace ddprun
