#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/sharding/placement.h"

namespace ddprun::sharding {

// An axis of a mesh, and the ranks that differ from this one only on it.
struct AxisGroup {
  std::string axis;
  ProcessGroup* group;
};

// Returns whether the ranks of an axis have different parts of a tensor. Pure.
bool is_sharded_on(const std::string& axis, const Placement& placement);

// Sums over the elements of all parts of tensors, each element once, with the same bits at every rank: the square of a
// gradient's norm, or whether all of it is finite. The axes on which tensors are not sharded take no part, since their
// ranks have the same parts.
//
// Ownership: the groups outlive it. Threads: one at a time; sums are collective. Errors: those of the groups.
class ShardedSum {
 public:
  // own: the tensors of which this rank has parts; rank: its number on their mesh. axes: those on which tensors may be
  // sharded or at one stage only, the innermost first.
  ShardedSum(const std::vector<PlacedTensor>& own, int rank, std::vector<AxisGroup> axes);

  // Groups of this rank's tensors, by index, which are summed apart; those that count at another rank are in no group.
  const std::vector<std::vector<std::size_t>>& groups() const { return groups_; }
  // sum_of: returns the sum over this rank's parts of the tensors of a group.
  double sum(const std::function<double(std::size_t group)>& sum_of) const;
  // Adds up one number of each rank over the ranks that have different parts.
  double sum_over_ranks(double value) const;
  // Returns whether ranks have different parts.
  bool is_sharded() const { return !axes_.empty(); }

 private:
  bool is_first_copy(std::size_t first, const Placement& placement) const;

  std::vector<AxisGroup> axes_;  // those of several ranks
  // By axis, the tensors that are sharded on it and on none before it; last, those that are sharded on none. Copies of
  // a part at several stages, or on an axis over which the sum goes on, count at the first.
  std::vector<std::vector<std::size_t>> groups_;
};

}  // namespace ddprun::sharding
