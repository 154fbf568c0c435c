#include "worker/parallel/forms/pipeline/tied_parameters.h"

#include <map>
#include <set>

#include "common/error.h"
#include "worker/parallel/group_tensors.h"
#include "worker/tensor/kernels.h"

namespace ddprun::pipeline {
namespace {

// Returns this rank's part of the bucket that the parameter has to itself.
Tensor part_of_gradient(const Variable& parameter, const ShardedBuckets& sharded) {
  for (std::size_t b = 0; b < sharded.buckets.size(); ++b) {
    const auto& slices = sharded.buckets[b].slices;
    if (slices.size() == 1 && sharded.parameters[slices[0].parameter].second.is(parameter)) return sharded.gradients[b];
  }
  throw Error(Errc::internal, "a tied parameter without a bucket of its own");
}

// Returns the gradient; undefined if this rank's stages did not use the parameter.
Tensor gradient_of(const Variable& parameter, const ShardedBuckets* sharded) {
  return sharded ? part_of_gradient(parameter, *sharded) : parameter.grad();
}

}  // namespace

TiedParameters::TiedParameters(const std::vector<Stage>& stages, const Schedule& schedule, ProcessGroup& group)
    : group_(group) {
  std::map<std::string, std::set<int>> ranks;
  for (const Stage& stage : stages)
    for (const auto& [name, parameter] : stage.parameters)
      if (parameter.requires_grad()) ranks[name].insert(schedule.rank_of(stage.number));
  for (const auto& [name, all] : ranks) {
    if (all.size() < 2 || !all.contains(group.rank())) continue;
    for (const Stage& stage : stages)
      for (const auto& [own, parameter] : stage.parameters)
        if (own == name && (tied_.empty() || !tied_.back().parameter.is(parameter)))
          tied_.push_back({parameter, {all.begin(), all.end()}});
  }
}

// The first rank adds, in the order of ranks, and sends the sum back: all get the same bits.
std::uint64_t TiedParameters::sum_gradients(const ShardedBuckets* sharded) const {
  constexpr int tag = 0;  // messages of stages begin with a layout, which no stage 0 receives
  std::uint64_t sent = 0;
  for (const Tied& tied : tied_) {
    Tensor gradient = gradient_of(tied.parameter, sharded);
    Tensor sum = gradient.defined() ? gradient.clone() : Tensor::zeros_like(tied.parameter.value());
    if (sum.numel() == 0) continue;
    if (group_.rank() == tied.ranks[0]) {
      Tensor other = Tensor::empty_like(sum);
      for (std::size_t i = 1; i < tied.ranks.size(); ++i) {
        group_.recv(span_of_tensor(other), tied.ranks[i], tag, {.blocking = true});
        kernels::add_in_place(sum, other);
      }
      for (std::size_t i = 1; i < tied.ranks.size(); ++i)
        group_.send(span_of_tensor(sum), tied.ranks[i], tag, {.blocking = true});
    } else {
      group_.send(span_of_tensor(sum), tied.ranks[0], tag, {.blocking = true});
      group_.recv(span_of_tensor(sum), tied.ranks[0], tag, {.blocking = true});
    }
    sent += sum.bytes() * (group_.rank() == tied.ranks[0] ? tied.ranks.size() - 1 : 1);
    if (gradient.defined()) gradient.copy_from(sum);
  }
  return sent;
}

}  // namespace ddprun::pipeline
