#include "worker/parallel/sharding/sharded_state.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "common/error.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/sharding/redistribute.h"

namespace ddprun::sharding {
namespace {

using Indices = std::vector<std::size_t>;

bool is_whole(const PlacedTensor& tensor, int rank) {
  return tensor.exists_at(rank) && tensor.local_shape(rank) == tensor.spec().shape;
}

// Returns the layout with everything at rank 0.
StateLayout whole_layout(std::size_t tensors) {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{}, 1);
  return {.placements = std::vector<Placement>(tensors, {.mesh = mesh}), .processes = {0}};
}

}  // namespace

ShardedState::ShardedState(std::vector<PlacedTensor> tensors, const NamedTensors& own, ProcessGroup& all)
    : tensors_(std::move(tensors)), all_(all) {
  const std::map<std::string_view, Tensor> by_name(own.begin(), own.end());
  for (const PlacedTensor& tensor : tensors_) {
    const auto found = by_name.find(tensor.spec().name);
    own_.push_back(found == by_name.end() ? Tensor() : found->second);
  }
}

bool ShardedState::is_whole_at_first(std::size_t tensor) const {
  return is_whole(tensors_[tensor], 0);
}

bool ShardedState::is_whole_at_all(std::size_t tensor) const {
  const PlacedTensor& placed = tensors_[tensor];
  return is_whole(placed, 0) && std::ssize(placed.holders(0)) == all_.size();
}

Redistribution ShardedState::without_layouts(const Indices& tensors) const {
  Redistribution result;
  for (const std::size_t i : tensors) result.tensors.push_back(tensors_[i].spec());
  return result;
}

StateLayout ShardedState::layout_of(const Indices& tensors) const {
  StateLayout layout;
  for (const std::size_t i : tensors) layout.placements.push_back(tensors_[i].placement());
  return layout;
}

void ShardedState::move(const Redistribution& redistribution, const std::vector<Tensor>& from,
                        const std::vector<Tensor>& to) const {
  move(redistribution, plan_redistribution(redistribution, all_.rank()), from, to);
}

void ShardedState::move(const Redistribution& redistribution, RedistributionPlan plan, const std::vector<Tensor>& from,
                        const std::vector<Tensor>& to) const {
  if (redistribution.tensors.empty()) return;
  const auto span_of = [&](const std::vector<Tensor>& tensors, std::size_t i) {
    return tensors[i].defined() ? span_of_tensor(tensors[i]) : Span{.dtype = redistribution.tensors[i].dtype};
  };
  std::vector<ConstSpan> sources;
  std::vector<Span> targets;
  for (std::size_t i = 0; i < redistribution.tensors.size(); ++i) {
    sources.push_back(span_of(from, i));
    targets.push_back(span_of(to, i));
  }
  // Rank 0's whole tensor may be its part.
  std::erase_if(plan.transfers, [&](const Transfer& transfer) {
    return transfer.source == transfer.destination && sources[transfer.tensor].data == targets[transfer.tensor].data;
  });
  redistribute(redistribution, plan, sources, targets, all_);
  for (const Tensor& tensor : to)
    if (tensor.defined()) tensor.storage()->bump_version();
}

NamedTensors ShardedState::whole_like() const {
  NamedTensors whole;
  if (all_.rank() != 0) return whole;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSpec& spec = tensors_[i].spec();
    whole.emplace_back(spec.name, is_whole_at_first(i) ? own_[i] : Tensor::zeros(Shape(spec.shape), spec.dtype));
  }
  return whole;
}

NamedTensors ShardedState::gather() const {
  NamedTensors whole = whole_like();
  Indices sharded;
  std::vector<Tensor> from, to;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (is_whole_at_first(i)) continue;
    sharded.push_back(i);
    from.push_back(own_[i]);
    to.push_back(whole.empty() ? Tensor() : whole[i].second);
  }
  Redistribution redistribution = without_layouts(sharded);
  redistribution.from = layout_of(sharded);
  redistribution.to = whole_layout(sharded.size());
  move(redistribution, from, to);
  return whole;
}

void ShardedState::scatter(const NamedTensors& whole) const {
  Indices sharded;
  std::vector<Tensor> from, to;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor value = whole.empty() ? Tensor() : whole[i].second;
    if (!is_whole_at_all(i)) {
      sharded.push_back(i);
      from.push_back(value);
      to.push_back(own_[i]);
    } else {
      Tensor target = own_[i];  // a handle on the same elements
      if (value.defined() && value.raw() != target.raw()) target.copy_from(value);
      if (all_.size() > 1)  // with one rank, tensors may be on several devices
        all_.broadcast(span_of_tensor(target), 0, {.blocking = true, .after = compute_stream(target.device())});
      target.storage()->bump_version();
    }
  }
  Redistribution redistribution = without_layouts(sharded);
  redistribution.from = whole_layout(sharded.size());
  redistribution.to = layout_of(sharded);
  move(redistribution, from, to);
}

Indices ShardedState::places_in(const ShardedState& other) const {
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < other.tensors_.size(); ++i) places.emplace(other.tensors_[i].spec().name, i);
  Indices all;
  for (const PlacedTensor& tensor : tensors_) all.push_back(places.at(tensor.spec().name));
  return all;
}

Redistribution ShardedState::redistribution_to(const ShardedState& other) const {
  Indices all(tensors_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  Redistribution redistribution = without_layouts(all);
  redistribution.from = layout_of(all);
  redistribution.to = other.layout_of(places_in(other));
  return redistribution;
}

RedistributionPlan ShardedState::plan_move(const ShardedState& other) const {
  return plan_redistribution(redistribution_to(other), all_.rank());
}

void ShardedState::move_to(const ShardedState& other, RedistributionPlan plan) const {
  std::vector<Tensor> to;
  for (const std::size_t i : places_in(other)) to.push_back(other.own_[i]);
  move(redistribution_to(other), std::move(plan), own_, to);
}

}  // namespace ddprun::sharding
