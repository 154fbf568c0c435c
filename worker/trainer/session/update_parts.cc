#include "worker/trainer/session/update_parts.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <variant>

#include "worker/parallel/sharding/sharded_state.h"

namespace ddprun::trainer {

using sharding::NamedTensors;
using sharding::PlacedTensor;
using sharding::Placement;

bool is_whole(const Placement& placement) {
  return placement.shards.empty() && std::holds_alternative<sharding::Replicate>(placement.local);
}

std::vector<PlacedTensor> at_owners(const std::vector<PlacedTensor>& tensors, int ranks) {
  const std::string axis = "owner";
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{axis, ranks}}, ranks);
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));
  std::vector<PlacedTensor> all;
  for (const PlacedTensor& tensor : tensors) {
    const auto least = std::ranges::min_element(elements);
    *least += tensor.spec().elements();
    const auto owner = static_cast<int>(least - elements.begin());
    all.emplace_back(tensor.spec(), Placement{.mesh = mesh, .local = sharding::Owner{axis, owner}});
  }
  return all;
}

UpdateParts::UpdateParts(sharding::ParameterPlacements placements, std::vector<sharding::AxisGroup> axes,
                         ProcessGroup& all, ProcessGroup* stages)
    : placements_(std::move(placements)), axes_(std::move(axes)), all_(all), stages_(stages) {}

Shape UpdateParts::whole_shape(const std::string& parameter) const {
  return Shape(placements_.of_parameter(parameter).spec().shape);
}

// Stages that have the same parameter have the same parts of it.
void UpdateParts::add_up(const std::vector<std::string>& parameters, std::span<double> numbers) {
  if (parameters.empty()) return;
  const std::size_t each = numbers.size() / parameters.size();
  for (const auto& [axis, group] : axes_) {
    if (axis == "pipeline" || group->size() == 1) continue;
    std::vector<std::size_t> indices;
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (sharding::is_sharded_on(axis, placements_.of_parameter(parameters[p]).placement()))
        for (std::size_t i = 0; i < each; ++i) indices.push_back(p * each + i);
    if (indices.empty()) continue;
    std::vector<double> sums;
    for (const std::size_t i : indices) sums.push_back(numbers[i]);
    group->allreduce(span_of(sums), ReduceOp::sum, {.blocking = true});
    for (std::size_t i = 0; i < indices.size(); ++i) numbers[indices[i]] = sums[i];
  }
}

const UpdateParts::Exchange& UpdateParts::exchange_of(std::size_t group, const NamedTensors& parts) {
  const auto known = exchanges_.find(group);
  if (known != exchanges_.end()) return known->second;
  Exchange exchange{.parts = sharding::placed_tensors(placements_, parts, stages_)};
  exchange.whole = at_owners(exchange.parts, all_.size());
  const sharding::ShardedState in_parts(exchange.parts, {}, all_), whole(exchange.whole, {}, all_);
  exchange.to_whole = in_parts.plan_move(whole);
  exchange.to_parts = whole.plan_move(in_parts);
  return exchanges_.emplace(group, std::move(exchange)).first->second;
}

void UpdateParts::transform(std::size_t group, const NamedTensors& parts,
                            const std::function<void(Tensor& whole)>& function) {
  NamedTensors sharded;
  for (auto [name, part] : parts) {
    if (is_whole(placements_.of_parameter(name).placement()))
      function(part);
    else
      sharded.emplace_back(name, part);
  }
  const Exchange& exchange = exchange_of(group, sharded);
  NamedTensors owned;
  for (const PlacedTensor& tensor : exchange.whole)
    if (tensor.exists_at(all_.rank()))
      owned.emplace_back(tensor.spec().name, Tensor::empty(Shape(tensor.spec().shape), tensor.spec().dtype));
  const sharding::ShardedState in_parts(exchange.parts, sharded, all_), whole(exchange.whole, owned, all_);
  in_parts.move_to(whole, exchange.to_whole);
  for (auto& [name, tensor] : owned) function(tensor);
  whole.move_to(in_parts, exchange.to_parts);
}

}  // namespace ddprun::trainer
