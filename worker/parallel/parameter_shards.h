#pragma once

#include <cstddef>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/divided_parameters.h"
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
//   loss(ddp.forward(inputs), targets).backward();   // this rank's parts of the gradients are averaged
//   optimizer->step();
//   ddp.parameters_updated();                        // the parameters are complete
//
// Ownership: the group, among whose ranks the parameters are divided, outlives this object. Threads: one at a time.
//   gather_state() and scatter_state() are collective.
// Errors: those of the group.
class ParameterShards {
 public:
  ParameterShards(const DividedParameters& divided, ProcessGroup& group);

  // One for each trainable parameter, under its name: this rank's elements of it as one dimension, maybe none. Views of
  // the divided values and gradients.
  const optim::NamedParameters& parameters() const { return parts_; }
  // The same groups of these parts. Parameters that are not trained are left out.
  std::vector<optim::ParameterGroup> of(std::vector<optim::ParameterGroup> groups) const;

  // The state of an optimizer of the parts, as one of the whole parameters has it, or tensors under the parameters' own
  // names. Rank 0 gets, and gives, the whole of it in its memory; the others nothing.
  optim::NamedTensors gather_state(const optim::NamedTensors& parts) const;
  // Zeros of the shapes that gather_state() gives: what a checkpoint is read into. Not collective.
  optim::NamedTensors whole_state(const optim::NamedTensors& parts) const;
  void scatter_state(const optim::NamedTensors& whole, const optim::NamedTensors& parts) const;

 private:
  std::size_t index_of(const std::string& state_name) const;

  ProcessGroup& group_;
  optim::NamedParameters parts_;  // by parameter
  std::vector<Shape> shapes_;     // by parameter: of the whole
  std::vector<Counts> counts_;    // by parameter: elements of each rank
};

}  // namespace ddprun
