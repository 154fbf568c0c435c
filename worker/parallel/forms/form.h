#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/optim/parameter_group.h"
#include "worker/parallel/mesh/counted_group.h"
#include "worker/parallel/sharding/dimension_shards.h"
#include "worker/tensor/tensor.h"

namespace ddprun {

// A form of parallel training in which the neighbouring ranks of an axis compute a model's passes for each other. Its
// constructor changes the model; its methods tell a training loop what to do differently. By default, that is nothing.
//
// Ownership: model and group outlive it. Threads: one at a time.
class Form {
 public:
  virtual ~Form() = default;

  // The ranks of the axis, and what passes have exchanged among them.
  virtual const CountedGroup& group() const = 0;
  // The parameters that the ranks shard; null if each rank has all of them whole.
  virtual const sharding::DimensionShards* shards() const { return nullptr; }

  // Returns whether each rank has some of the positions of the same samples: those that own_positions() takes from
  // inputs or targets that have all.
  virtual bool divides_positions() const { return false; }
  virtual Tensor own_positions(const Tensor& all) const { return all; }
  // Returns whether ranks compute for the samples of others, so that each makes as many passes as the one with most.
  virtual bool needs_equal_passes() const { return false; }

  // As cross_entropy() of worker/autograd/ops/loss.h.
  using CrossEntropy = std::function<Variable(const Variable& scores, const Tensor& targets)>;
  // Returns the function for scores of which each rank has some classes; empty if each has all of them. ignored: the
  // target that counts for nothing.
  virtual CrossEntropy cross_entropy(std::int64_t /*ignored*/) { return {}; }

  // Returns the parameters whose gradients the ranks do not have alike before complete_gradients().
  virtual std::vector<std::string> own_gradients() const { return {}; }
  // To be called after the passes of a step, before their gradients are used. parameters: the model's, or this rank's
  // parts of them under their names. Collective.
  virtual void complete_gradients(const optim::NamedParameters& /*parameters*/) {}
};

}  // namespace ddprun
