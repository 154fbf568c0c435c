#include "worker/parallel/forms/data/zero/shard_meshes.h"

#include "worker/comm/subgroups.h"

namespace ddprun {
namespace {

// Where no two ranks have the same slices all of them exchange what they compute for each other, and reductions have a
// group of their own, so that these exchanges do not wait for them.
std::unique_ptr<ProcessGroup> own_group(ProcessGroup& group, const ProcessGroup* replicas) {
  return replicas && replicas->size() == 1 && group.size() > 1 ? split(group, 0, group.rank()) : nullptr;
}

std::vector<MeshAxis> axes_of(int shard_group, int ranks) {
  return {{"replicate", mesh_rest}, {"shard", shard_group > 0 ? shard_group : ranks}};
}

}  // namespace

ShardMeshes::ShardMeshes(ProcessGroup& group, int shard_group, ProcessGroup* replicas)
    : own_group_(own_group(group, replicas)),
      all_(own_group_ ? *own_group_ : group, axes_of(shard_group, group.size())) {
  if (!replicas) return;
  const int slices = group.size() / replicas->size();
  of_slices_.emplace(*replicas, axes_of(shard_group / slices, replicas->size()));
}

BucketRanks ShardMeshes::ranks(bool sliced) const {
  const DeviceMesh& mesh = sliced ? *of_slices_ : all_;
  return {.shard = &mesh.group("shard"), .replicate = &mesh.group("replicate"), .divisor = all().size()};
}

std::uint64_t ShardMeshes::bytes_sent() const {
  std::uint64_t sum = all_.bytes_sent() - (own_group_ ? 0 : all_.all().bytes_sent());
  if (of_slices_) sum += of_slices_->bytes_sent() - of_slices_->all().bytes_sent();
  return sum;
}

}  // namespace ddprun
