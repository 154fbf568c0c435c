#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "worker/optim/optimizer.h"
#include "worker/parallel/sharding/sharded_buckets.h"
#include "worker/reducer/shards.h"

namespace ddprun {

// This rank's parts of a model whose updates are sharded among the ranks: ZeRO stage 1 (Rajbhandari et al., 2020;
// PyTorch's ZeroRedundancyOptimizer), and the update of stages 2 and 3. An optimizer of only these parts keeps 1/N of
// the state and does 1/N of the work; then every rank gets the others' parts. Parts are ranges of elements, so they are
// equal whatever the sizes of the parameters; the optimizer has to be elementwise.
//
//   DistributedDataParallel ddp(model, group, {.shard_gradients = true});   // or ShardedDataParallel
//   ParameterShards shards(*ddp.sharded_buckets());
//   auto optimizer = optim::make_optimizer("adam", {}, shards.parameters());
//   ddp.zero_grad();                                 // not the optimizer's, which has only parts
//   loss(ddp.forward(inputs), targets).backward();   // this rank's parts of the gradients are averaged
//   optimizer->step();
//   ddp.parameters_updated();                        // the parameters are complete
//
// The state of an optimizer of the parts becomes whole, like that of an optimizer of whole parameters, by
// sharding::placements_of() and sharding::ShardedState.
//
// Ownership: handles on the memory of the parts. Threads: one at a time. Errors: none.
class ParameterShards {
 public:
  explicit ParameterShards(const ShardedBuckets& sharded);

  // One part for each trainable parameter, under its name: this rank's elements of it as one dimension, maybe none.
  // Parts are views of the sharded values and gradients.
  const optim::NamedParameters& parameters() const { return parts_; }
  // To be called after the passes of a step, where some of them may leave out parameters: parts of those that no rank
  // has used have no gradient until the next call, so that optimizers pass over them.
  void define_gradients();
  // Returns the same groups of these parts. Parameters that are not trained are left out.
  std::vector<optim::ParameterGroup> of(std::vector<optim::ParameterGroup> groups) const;

 private:
  const std::function<bool(std::size_t)> used_;  // ShardedBuckets::used
  optim::NamedParameters parts_;
};

}  // namespace ddprun
