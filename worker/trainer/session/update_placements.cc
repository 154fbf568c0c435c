#include "worker/trainer/session/update_placements.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {
namespace {

using FlatShards = std::map<std::string, sharding::FlatShard>;

// Returns the number of ranks that shard updates.
int shards_of(const ParallelForms& forms) {
  return forms.parallelism.sharded_buckets() ? forms.parallelism.shard_group().size() : 1;
}

// Returns the mesh with the sizes of its axes: neighbours with gradients of their own shard together. Where experts are
// sharded their updates are sharded over fewer axes than the others, and each of these axes stays.
std::shared_ptr<const MeshShape> mesh_of_updates(const ParallelForms& forms) {
  std::vector<MeshAxis> axes;
  for (const MeshAxis& axis : forms.mesh.shape().axes()) {
    if (axis.name == "data") {
      const int others = forms.axes.experts() ? forms.groups.gradients.size() / axis.size : 1;
      axes.push_back({"replicate", mesh_rest});
      axes.push_back({"shard", std::max(shards_of(forms) / others, 1)});
    } else if (!model_axis(axis.name).has_own_gradients || forms.axes.experts()) {
      axes.push_back(axis);
    }
  }
  return std::make_shared<const MeshShape>(std::move(axes), forms.mesh.shape().ranks());
}

// Adds the places of the buckets of experts, or those of the others.
void add_flat_shards(const ParallelForms& forms, const GradientBuckets& all, bool of_experts, FlatShards& shards) {
  const auto is_of_experts = [&](const Bucket& bucket) {
    return forms.axes.is_expert(all.parameters[bucket.slices.front().parameter].first);
  };
  AxisNames axes = axes_with(&ModelAxis::has_own_gradients);
  if (of_experts) std::erase(axes, forms.axes.experts()->axis());
  axes.insert(axes.begin(), "shard");
  std::vector<Bucket> buckets = all.buckets;
  std::erase_if(buckets, [&](const Bucket& bucket) { return is_of_experts(bucket) != of_experts; });
  shards.merge(sharding::flat_shards(all.parameters, buckets, mesh_of_updates(forms)->among(axes)));
}

// Returns the placement of a parameter or buffer that its stages have whole.
sharding::Placement placement_of_whole(const ParallelForms& forms, const std::shared_ptr<const MeshShape>& mesh,
                                       const std::string& name) {
  sharding::Placement placement{.mesh = mesh};
  if (!forms.pipelined) return placement;
  const auto& ranks = forms.pipelined->pipeline().ranks_of(name);
  placement.stage = sharding::Stage{{ranks.begin(), ranks.end()}};
  return placement;
}

FlatShards flat_shards_of(const ParallelForms& forms) {
  const ShardedBuckets* sharded = forms.parallelism.sharded_buckets();
  if (!sharded) return {};
  std::vector<GradientBuckets> parts;
  if (!forms.pipelined) parts.push_back({sharded->parameters, sharded->buckets});
  for (int rank = 0; forms.pipelined && rank < forms.groups.stages->size(); ++rank)
    parts.push_back(forms.pipelined->buckets_of(rank));
  FlatShards all;
  for (const GradientBuckets& part : parts)
    for (const bool of_experts : {false, true})
      if (!of_experts || forms.axes.experts()) add_flat_shards(forms, part, of_experts, all);
  return all;
}

}  // namespace

std::vector<sharding::AxisGroup> axes_of_updates(const ParallelForms& forms) {
  std::vector<sharding::AxisGroup> axes;
  const auto add = [&](const ModelAxis& axis) {
    const std::string name(axis.name());
    if (!forms.mesh.shape().among({name}).empty()) axes.push_back({name, &forms.mesh.group(name)});
  };
  for (const ModelAxis& axis : model_axes())
    if (!axis.is_outermost && !axis.has_own_gradients) add(axis);
  // The group of experts' parts has the ranks of the other axes with gradients of their own as well.
  if (forms.parallelism.sharded_buckets()) axes.push_back({"shard", &forms.parallelism.shard_group_of_slices()});
  for (const ModelAxis& axis : model_axes())
    if (axis.shards_state && axis.has_own_gradients) add(axis);
  for (const ModelAxis& axis : model_axes())
    if (axis.is_outermost) add(axis);
  return axes;
}

sharding::ParameterPlacements placements_of_updates(const ParallelForms& forms, const nn::Module& model) {
  const auto mesh = mesh_of_updates(forms);
  const FlatShards flat = flat_shards_of(forms);
  sharding::ParameterPlacements placements;
  for (const auto& [name, parameter] : model.named_parameters()) {
    sharding::Placement placement = placement_of_whole(forms, mesh, name);
    const Shape shape = sharding::add_shards(forms.axes.shards(), name, parameter.shape(), placement);
    if (const auto found = flat.find(name); found != flat.end()) placement.local = found->second;
    placements.add({name, shape.to_vector(), parameter.value().dtype()}, std::move(placement));
  }
  for (const auto& [name, buffer] : model.named_buffers()) {
    sharding::Placement placement = placement_of_whole(forms, mesh, name);
    const Shape shape = sharding::add_shards(forms.axes.shards(), name, buffer.shape(), placement);
    placements.add({name, shape.to_vector(), buffer.dtype()}, std::move(placement));
  }
  return placements;
}

}  // namespace ddprun::trainer
