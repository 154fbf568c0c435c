#include "worker/parallel/sharding/sharded_sum.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ddprun::sharding {
namespace {

bool counts_at(const Placement& placement, int rank) {
  return !placement.stage ||
         placement.mesh->coordinate(rank, "pipeline") == std::ranges::min(placement.stage->coordinates);
}

double sum_over(ProcessGroup& group, double value) {
  group.allreduce({&value, 1, DType::float64}, ReduceOp::sum, {.blocking = true});
  return value;
}

}  // namespace

bool is_sharded_on(const std::string& axis, const Placement& placement) {
  if (axis == "pipeline") return placement.stage.has_value();
  const auto* flat = std::get_if<FlatShard>(&placement.local);
  return std::ranges::count(placement.shards, axis, &Shard::axis) > 0 ||
         (flat && std::ranges::count(flat->axes, axis) > 0);
}

ShardedSum::ShardedSum(const std::vector<PlacedTensor>& own, int rank, std::vector<AxisGroup> axes)
    : axes_(std::move(axes)) {
  std::erase_if(axes_, [](const AxisGroup& each) { return each.group->size() == 1; });
  groups_.resize(axes_.size() + 1);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Placement& placement = own[i].placement();
    if (!counts_at(placement, rank)) continue;
    std::size_t first = 0;
    while (first < axes_.size() && !is_sharded_on(axes_[first].axis, placement)) ++first;
    if (is_first_copy(first, placement)) groups_[first].push_back(i);
  }
}

// Returns whether this rank's part counts in the sums over axes from one on: those that do not shard it add up copies.
bool ShardedSum::is_first_copy(std::size_t first, const Placement& placement) const {
  for (std::size_t a = first; a < axes_.size(); ++a)
    if (!is_sharded_on(axes_[a].axis, placement) && axes_[a].group->rank() > 0) return false;
  return true;
}

double ShardedSum::sum(const std::function<double(std::size_t group)>& sum_of) const {
  double value = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a) value = sum_over(*axes_[a].group, value + sum_of(a));
  return value + sum_of(axes_.size());
}

double ShardedSum::sum_over_ranks(double value) const {
  for (const AxisGroup& each : axes_) value = sum_over(*each.group, value);
  return value;
}

}  // namespace ddprun::sharding
