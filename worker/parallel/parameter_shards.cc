#include "ddprun/worker/parallel/parameter_shards.h"

#include <algorithm>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

// A rank's elements of a slice, from the start of the slice.
Shard part_of_slice(const Bucket& bucket, const BucketSlice& slice, int rank, int ranks) {
  const Shard common =
      intersection(shard_of(bucket.count, rank, ranks), {.begin = slice.offset, .end = slice.offset + slice.count});
  if (common.count() == 0) return {};
  return {.begin = common.begin - slice.offset, .end = common.end - slice.offset};
}

// What an optimizer keeps for each parameter as a whole, such as a count.
bool is_replicated(const Tensor& state) {
  return state.dim() == 0;
}

}  // namespace

ParameterShards::ParameterShards(const DividedParameters& divided, ProcessGroup& group, ProcessGroup* replicas)
    : group_(group), replicas_(replicas) {
  parts_.resize(divided.parameters.size());
  shapes_.resize(parts_.size());
  counts_.resize(parts_.size());
  for (std::size_t b = 0; b < divided.buckets.size(); ++b) {
    const Bucket& bucket = divided.buckets[b];
    const Shard own = shard_of(bucket.count, group.rank(), group.size());
    for (const BucketSlice& slice : bucket.slices) {
      const auto& [name, whole] = divided.parameters[slice.parameter];
      shapes_[slice.parameter] = whole.shape();
      for (int rank = 0; rank < group.size(); ++rank)
        counts_[slice.parameter].push_back(part_of_slice(bucket, slice, rank, group.size()).count());
      const Shard part = part_of_slice(bucket, slice, group.rank(), group.size());
      const auto begin = static_cast<std::int64_t>(part.count() == 0 ? 0 : slice.offset + part.begin - own.begin);
      const auto count = static_cast<std::int64_t>(part.count());
      Variable variable(divided.values[b].slice(0, begin, count), true);
      variable.set_grad_storage(divided.gradients[b].slice(0, begin, count), Variable::GradStorage::borrowed);
      parts_[slice.parameter] = {name, variable};
    }
  }
}

std::vector<optim::ParameterGroup> ParameterShards::of(std::vector<optim::ParameterGroup> groups) const {
  for (auto& group : groups) {
    optim::NamedParameters parts;
    for (const auto& [name, whole] : group.parameters) {
      const auto found = std::ranges::find(parts_, name, [](const auto& part) { return part.first; });
      if (found != parts_.end()) parts.push_back(*found);
    }
    group.parameters = std::move(parts);
  }
  return groups;
}

std::size_t ParameterShards::index_of(const std::string& state_name) const {
  const auto find = [this](const std::string& name) {
    return std::ranges::find(parts_, name, [](const auto& part) { return part.first; });
  };
  auto found = find(state_name);
  if (found == parts_.end()) found = find(state_name.substr(0, state_name.rfind('.')));
  if (found == parts_.end()) throw make_error(Errc::internal, "there is no parameter of the state {}", state_name);
  return static_cast<std::size_t>(found - parts_.begin());
}

optim::NamedTensors ParameterShards::whole_like(const optim::NamedTensors& own) const {
  optim::NamedTensors whole;
  if (group_.rank() != 0 || !is_first_replica()) return whole;
  for (const auto& [name, part] : own) {
    const Shape shape = is_replicated(part) ? Shape{} : shapes_[index_of(name)];
    whole.emplace_back(name, Tensor::zeros(shape, part.dtype()));
  }
  return whole;
}

optim::NamedTensors ParameterShards::gather(const optim::NamedTensors& own) const {
  optim::NamedTensors whole = whole_like(own);
  if (!is_first_replica()) return whole;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, part] = own[i];
    if (is_replicated(part)) {
      if (group_.rank() == 0) whole[i].second.copy_from(part);
    } else {
      const Span all = group_.rank() == 0 ? span_of_tensor(whole[i].second) : Span{.dtype = part.dtype()};
      group_.gatherv(span_of_tensor(part), all, counts_[index_of(name)], 0, {.blocking = true});
    }
  }
  return whole;
}

void ParameterShards::scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const {
  if (is_first_replica()) scatter_in_group(whole, own);
  if (!replicas_) return;
  for (const auto& [name, part] : own) replicas_->broadcast(span_of_tensor(part), 0, {.blocking = true});
}

void ParameterShards::scatter_in_group(const optim::NamedTensors& whole, const optim::NamedTensors& own) const {
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, part] = own[i];
    if (is_replicated(part)) {
      Tensor target = part;  // a handle on the same elements
      if (group_.rank() == 0) target.copy_from(whole[i].second);
      group_.broadcast(span_of_tensor(target), 0, {.blocking = true});
    } else {
      const Span all = group_.rank() == 0 ? span_of_tensor(whole[i].second) : Span{.dtype = part.dtype()};
      group_.scatterv(all, counts_[index_of(name)], span_of_tensor(part), 0, {.blocking = true});
    }
  }
}

}  // namespace ddprun
