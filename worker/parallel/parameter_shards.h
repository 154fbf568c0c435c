#pragma once

#include <cstddef>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/divided_parameters.h"
#include "ddprun/worker/parallel/state_division.h"
#include "ddprun/worker/reducer/shards.h"

namespace ddprun {

// This rank's parts of a model whose updates are divided among the ranks: ZeRO stage 1 (Rajbhandari et al., 2020;
// PyTorch's ZeroRedundancyOptimizer), and what stages 2 and 3 update as well. An optimizer of the parts alone keeps 1/N
// of the state and does 1/N of the work; then every rank gets the others' parts. Parts are ranges of elements, so they
// are equal whatever the sizes of the parameters; the optimizer has to be elementwise.
//
//   DistributedDataParallel ddp(model, group, {.shard_gradients = true});   // or ShardedDataParallel
//   ParameterShards shards(*ddp.divided(), group);
//   auto optimizer = optim::make_optimizer("adam", {}, shards.parameters());
//   ddp.zero_grad();                                 // not the optimizer's, which has parts alone
//   loss(ddp.forward(inputs), targets).backward();   // this rank's parts of the gradients are averaged
//   optimizer->step();
//   ddp.parameters_updated();                        // the parameters are complete
//
// As a StateDivision: of the state of an optimizer of the parts, which is whole as one of the whole parameters has it.
//
// Ownership: the group, among whose ranks the parameters are divided, and replicas, the ranks that have the same parts,
//   outlive this object. Threads: one at a time. Errors: those of the groups.
class ParameterShards final : public StateDivision {
 public:
  ParameterShards(const DividedParameters& divided, ProcessGroup& group, ProcessGroup* replicas = nullptr);

  // One for each trainable parameter, under its name: this rank's elements of it as one dimension, maybe none. Views of
  // the divided values and gradients.
  const optim::NamedParameters& parameters() const { return parts_; }
  // The same groups of these parts. Parameters that are not trained are left out.
  std::vector<optim::ParameterGroup> of(std::vector<optim::ParameterGroup> groups) const;

  optim::NamedTensors gather(const optim::NamedTensors& own) const override;
  optim::NamedTensors whole_like(const optim::NamedTensors& own) const override;
  void scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const override;

 private:
  std::size_t index_of(const std::string& state_name) const;
  // Of the shard group that has rank 0.
  bool is_first_replica() const { return !replicas_ || replicas_->rank() == 0; }
  void scatter_in_group(const optim::NamedTensors& whole, const optim::NamedTensors& own) const;

  ProcessGroup& group_;
  ProcessGroup* const replicas_;  // null: there is one shard group
  optim::NamedParameters parts_;  // by parameter
  std::vector<Shape> shapes_;     // by parameter: of the whole
  std::vector<Counts> counts_;    // by parameter: elements of each rank
};

}  // namespace ddprun
