#include "worker/parallel/sharding/parameter_placements.h"

#include <memory>
#include <set>
#include <sstream>

#include "common/error.h"
#include "worker/comm/collectives.h"

namespace ddprun::sharding {
namespace {

// Returns one line for each tensor: its type, whether it is a scalar, and its name, which is the rest.
std::string described(const NamedTensors& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors)
    text << static_cast<int>(tensor.dtype()) << ' ' << (tensor.dim() == 0) << ' ' << name << '\n';
  return text.str();
}

}  // namespace

void ParameterPlacements::add(TensorSpec spec, Placement placement) {
  const std::string name = spec.name;
  parameters_.emplace(name, PlacedTensor(std::move(spec), std::move(placement)));
}

const PlacedTensor& ParameterPlacements::of_parameter(const std::string& name) const {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) throw make_error(Errc::internal, "there is no placement of {}", name);
  return found->second;
}

PlacedTensor ParameterPlacements::of_tensor(const std::string& name, DType dtype, bool is_scalar) const {
  const bool is_parameter = parameters_.contains(name);
  const PlacedTensor& parameter = of_parameter(is_parameter ? name : name.substr(0, name.rfind('.')));
  const Placement& placement = parameter.placement();
  if (is_scalar && !is_parameter) return {{name, {}, dtype}, {.mesh = placement.mesh, .stage = placement.stage}};
  return {{name, parameter.spec().shape, dtype}, placement};
}

std::map<std::string, FlatShard> flat_shards(const std::vector<std::pair<std::string, Variable>>& parameters,
                                             const std::vector<Bucket>& buckets, const AxisNames& axes) {
  std::map<std::string, FlatShard> all;
  for (const Bucket& bucket : buckets) {
    const auto layout = std::make_shared<BucketLayout>();
    layout->elements = static_cast<std::int64_t>(bucket.count);
    for (const BucketSlice& slice : bucket.slices) {
      const std::string& name = parameters[slice.parameter].first;
      all.emplace(name, FlatShard{axes, layout, layout->slots.size()});
      layout->slots.push_back({name, static_cast<std::int64_t>(slice.offset), static_cast<std::int64_t>(slice.count)});
    }
  }
  return all;
}

ParameterPlacements placements_of(const ShardedBuckets& sharded, const ProcessGroup& group) {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"shard", group.size()}}, group.size());
  ParameterPlacements placements;
  const auto flat = flat_shards(sharded.parameters, sharded.buckets, {"shard"});
  for (const auto& [name, parameter] : sharded.parameters)
    placements.add({name, parameter.shape().to_vector(), parameter.value().dtype()},
                   {.mesh = mesh, .local = flat.at(name)});
  return placements;
}

Shape add_shards(const ShardsOnAxes& axes, const std::string& tensor, Shape local, Placement& placement) {
  for (const DimensionShards* each : axes) {
    const Shard* const shard = each->find(tensor);
    if (!shard) continue;
    local = whole_shape(local, *shard, each->group().size());
    placement.shards.push_back(*shard);
  }
  return local;
}

ParameterPlacements placements_of(const ShardsOnAxes& axes, const NamedTensors& model) {
  std::vector<MeshAxis> sizes;
  int ranks = 1;
  for (const DimensionShards* each : axes) {
    sizes.push_back({each->axis(), each->group().size()});
    ranks *= sizes.back().size;
  }
  const auto mesh = std::make_shared<const MeshShape>(sizes, ranks);
  ParameterPlacements placements;
  for (const auto& [name, tensor] : model) {
    Placement placement{.mesh = mesh};
    const Shape shape = add_shards(axes, name, tensor.shape(), placement);
    placements.add({name, shape.to_vector(), tensor.dtype()}, std::move(placement));
  }
  return placements;
}

std::vector<PlacedTensor> placed_tensors(const ParameterPlacements& placements, const NamedTensors& own,
                                         ProcessGroup* stages) {
  const auto texts = stages ? all_gather_bytes(*stages, described(own)) : std::vector{described(own)};
  std::vector<PlacedTensor> all;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    int dtype = 0;
    bool is_scalar = false;
    while (lines >> dtype >> is_scalar) {
      std::string name;
      std::getline(lines.ignore(), name);
      if (names.insert(name).second) all.push_back(placements.of_tensor(name, static_cast<DType>(dtype), is_scalar));
    }
  }
  return all;
}

}  // namespace ddprun::sharding
