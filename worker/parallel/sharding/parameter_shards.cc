#include "worker/parallel/sharding/parameter_shards.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

// Returns a rank's elements of a slice, from the start of the slice.
Shard part_of_slice(const Bucket& bucket, const BucketSlice& slice, int rank, int ranks) {
  const Shard common =
      intersection(shard_of(bucket.count, rank, ranks), {.begin = slice.offset, .end = slice.offset + slice.count});
  if (common.count() == 0) return {};
  return {.begin = common.begin - slice.offset, .end = common.end - slice.offset};
}

}  // namespace

ParameterShards::ParameterShards(const ShardedBuckets& sharded) : used_(sharded.used) {
  parts_.resize(sharded.parameters.size());
  for (std::size_t b = 0; b < sharded.buckets.size(); ++b) {
    const Bucket& bucket = sharded.buckets[b];
    const ProcessGroup& group = *sharded.groups[b];
    const Shard own = shard_of(bucket.count, group.rank(), group.size());
    for (const BucketSlice& slice : bucket.slices) {
      const Shard part = part_of_slice(bucket, slice, group.rank(), group.size());
      const auto begin = static_cast<std::int64_t>(part.count() == 0 ? 0 : slice.offset + part.begin - own.begin);
      const auto count = static_cast<std::int64_t>(part.count());
      Variable variable(sharded.values[b].slice(0, begin, count), true);
      variable.set_grad_storage(sharded.gradients[b].slice(0, begin, count), Variable::GradStorage::borrowed);
      parts_[slice.parameter] = {sharded.parameters[slice.parameter].first, variable};
    }
  }
}

void ParameterShards::define_gradients() {
  for (std::size_t p = 0; used_ && p < parts_.size(); ++p)
    used_(p) ? parts_[p].second.define_grad() : parts_[p].second.undefine_grad();
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

}  // namespace ddprun
