#include "ddprun/worker/trainer/session/update_placements.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

using FlatShards = std::map<std::string, sharding::FlatShard>;

// Returns the mesh with the sizes of its axes: neighbours on "data" and "context" shard together.
std::shared_ptr<const MeshShape> mesh_of_updates(const ParallelForms& forms) {
  const int shards = forms.parallelism.divided() ? forms.parallelism.shard_group().size() : 1;
  std::vector<MeshAxis> axes;
  for (const MeshAxis& axis : forms.mesh.shape().axes()) {
    if (axis.name == "data") {
      axes.push_back({"replicate", mesh_rest});
      axes.push_back({"shard", shards});
    } else if (axis.name != "context") {
      axes.push_back(axis);
    }
  }
  return std::make_shared<const MeshShape>(std::move(axes), forms.mesh.shape().ranks());
}

FlatShards flat_shards_of(const ParallelForms& forms) {
  const DividedParameters* divided = forms.parallelism.divided();
  if (!divided) return {};
  const AxisNames axes{"shard"};
  if (!forms.pipelined) return sharding::flat_shards(divided->parameters, divided->buckets, axes);
  FlatShards all;
  for (int rank = 0; rank < forms.mesh.size("pipeline"); ++rank) {
    const GradientBuckets of_stage = forms.pipelined->buckets_of(rank);
    all.merge(sharding::flat_shards(of_stage.parameters, of_stage.buckets, axes));
  }
  return all;
}

}  // namespace

std::vector<sharding::AxisGroup> axes_of_updates(const ParallelForms& forms) {
  std::vector<sharding::AxisGroup> axes;
  if (forms.tensor) axes.push_back({"tensor", &forms.mesh.group("tensor")});
  if (forms.experts) axes.push_back({"expert", &forms.mesh.group("expert")});
  if (forms.parallelism.divided()) axes.push_back({"shard", &forms.parallelism.shard_group()});
  if (forms.pipelined) axes.push_back({"pipeline", &forms.mesh.group("pipeline")});
  return axes;
}

sharding::ParameterPlacements placements_of_updates(const ParallelForms& forms, const nn::Module& model) {
  const auto mesh = mesh_of_updates(forms);
  const FlatShards flat = flat_shards_of(forms);
  sharding::ParameterPlacements placements;
  for (const auto& [name, parameter] : model.named_parameters()) {
    sharding::Placement placement{.mesh = mesh};
    if (forms.pipelined) {
      const auto& ranks = forms.pipelined->pipeline().ranks_of(name);
      placement.stage = sharding::Stage{{ranks.begin(), ranks.end()}};
    }
    const Shape shape = sharding::add_shards(forms.slices(), name, parameter.shape(), placement);
    if (const auto found = flat.find(name); found != flat.end()) placement.local = found->second;
    placements.add({name, shape.to_vector(), parameter.value().dtype()}, std::move(placement));
  }
  return placements;
}

}  // namespace ddprun::trainer
