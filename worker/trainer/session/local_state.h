#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/optim/optimizer.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/parallel/sharding/parameter_placements.h"
#include "worker/parallel/sharding/parameter_shards.h"
#include "worker/parallel/sharding/sharded_state.h"
#include "worker/parallel/sharding/sharded_sum.h"
#include "worker/profiler/step_times.h"
#include "worker/reducer/comm_hook.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/parallel_forms.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/session/state_parts.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// A state as the ranks have it under the forms of parallelism: the part that this rank updates, how the state becomes
// whole at rank 0 and is distributed again, and sums over all of it. If a rank has parts of what the optimizer updates,
// the constructor makes the optimizer, and the averages of train.ema, of these parts.
//
// Ownership: the constructor's arguments outlive this object.
// Threads: one at a time; all methods except parameters() and those that say so are collective.
class LocalState {
 public:
  LocalState(const TrainConfig& config, TrainState& state, ParallelForms& forms);
  LocalState(const LocalState&) = delete;
  LocalState& operator=(const LocalState&) = delete;

  // The parameters that this rank updates.
  const optim::NamedParameters& parameters() const { return parameters_; }

  // These do what Session's methods do.
  WholeState gather();
  WholeState whole();
  void distribute(const WholeState& whole);
  void distribute_averages(const WholeState& whole);
  void visit_parameters(const DataParallelism::Visitor& visit);
  void visit_replicas(const ReplicaVisitor& visit);  // not collective
  std::vector<HookState> own_state();                // not collective
  StateParts parts();
  void release() { saved_model_.reset(); }
  void parts_restored() { forms_.parallelism.parameters_restored(); }

  // To be called after the passes of a step: parts of parameters that no rank's pass has reached have no gradient. Not
  // collective.
  void define_gradients() {
    if (shards_) shards_->define_gradients();
  }
  // Returns whether this rank can update its parts without the others, given their gradients. Not collective.
  bool is_updated_alone() const;
  // Returns the parameters whose gradients count in square_sum(): those of ignored parameters are each rank's own, and
  // do not. Not collective.
  optim::NamedParameters counted_parameters() const;
  // Returns the square of the norm of the whole gradient with which this rank updates. It is equal at all ranks, unless
  // ranks step by gradients of their own (DataParallelism::ranks_differ()).
  double square_sum() const;
  // Returns the mean of square_sum() over the ranks: equal at all.
  double mean_square_sum() const;
  // Returns a function that says whether its argument holds at all ranks; empty if the gradient is the same at all.
  std::function<bool(bool)> holds_at_all() const;
  // The same two for numbers on a CUDA device, which they change; a flag is 0 if all is well, and stays so if it is at
  // all ranks. They do nothing where each rank has the same.
  void average_square_sum(const Tensor& square_sum) const;
  void spread_failure(const Tensor& flag) const;

  // Moves a layer of a balanced pipeline to a neighbouring stage if the times of the ranks, of some steps, call for it.
  // Returns why; empty if the stages stay.
  std::string balance_stages(const std::vector<profiler::StepTimes>& ranks);

 private:
  // Returns whether ranks have other gradients of some parameters than other ranks.
  bool has_own_gradients() const { return !own_parameters_.empty() || forms_.parallelism.ranks_differ(); }
  void apply_placements();
  void add_own_parameters();
  void make_optimizer_of_parts();
  std::shared_ptr<optim::TensorParts> tensor_parts() const;
  sharding::ShardedState sharded(const optim::NamedTensors& own) const;
  optim::NamedTensors own_parts() const;
  optim::NamedTensors averages_of_ranks() const;
  optim::NamedTensors parts_of_model() const;
  void cut_at(const std::vector<std::size_t>& cuts);

  const TrainConfig& config_;
  TrainState& state_;
  ParallelForms& forms_;
  std::optional<ParameterShards> shards_;          // set with parallel.zero
  const std::vector<std::string> own_parameters_;  // DataParallelism::own_parameters()
  optim::NamedParameters parameters_;
  sharding::ParameterPlacements placements_;        // those of what optimizer and averages have of each parameter
  std::optional<sharding::ShardedSum> sums_;        // those over parameters()
  std::shared_ptr<void> saved_model_;               // exists from gather() to release() if no rank trains what is saved
  std::vector<optim::NamedParameters> sum_groups_;  // its groups of the parameters whose gradients are reduced
};

}  // namespace ddprun::trainer
