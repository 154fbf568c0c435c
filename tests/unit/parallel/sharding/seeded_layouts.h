#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/parallel/sharding/placement.h"
#include "tests/support/random_source.h"
#include "tests/unit/parallel/sharding/bucket_plan.h"

namespace ddprun::testing {

using MeshPtr = std::shared_ptr<const MeshShape>;

// This class makes tensors, meshes and placements of all kinds, a function of the numbers that it is given.
class SeededLayouts {
 public:
  // Returns a number from low to high.
  using Between = std::function<int(int low, int high)>;

  explicit SeededLayouts(std::uint64_t seed)
      : between_([random = RandomSource(seed)](int low, int high) mutable { return random.between(low, high); }) {}
  explicit SeededLayouts(Between between) : between_(std::move(between)) {}

  struct State {
    std::vector<sharding::TensorSpec> specs;
    std::vector<sharding::Placement> placements;
  };

  int between(int low, int high) { return between_(low, high); }

  std::vector<sharding::TensorSpec> specs() {
    std::vector<sharding::TensorSpec> specs;
    for (int t = between(1, 4); t > 0; --t) {
      sharding::TensorSpec spec{.name = std::string(1, static_cast<char>('a' + t)),
                                .dtype = one_in(3) ? DType::float64 : DType::float32};
      for (int d = between(0, 3); d > 0; --d) spec.shape.push_back(between(1, 4) * between(1, 6));
      specs.push_back(std::move(spec));
    }
    return specs;
  }

  MeshPtr mesh(int ranks) {
    std::vector<MeshAxis> axes;
    for (const char* name : {"pipeline", "replicate", "shard", "context"}) {
      std::vector<int> divisors;
      for (int d = 1; d <= ranks; ++d)
        if (ranks % d == 0) divisors.push_back(d);
      const int size = divisors[static_cast<std::size_t>(between(0, static_cast<int>(divisors.size()) - 1))];
      axes.push_back({name, size});
      ranks /= size;
    }
    axes.push_back({"tensor", ranks});
    int all = 1;
    for (const MeshAxis& axis : axes) all *= axis.size;
    return std::make_shared<const MeshShape>(axes, all);
  }

  // The placements of all tensors are on one mesh, and those with a FlatShard share a bucket.
  std::vector<sharding::Placement> placements(const std::vector<sharding::TensorSpec>& specs, const MeshPtr& mesh) {
    std::vector<sharding::Placement> all;
    std::vector<sharding::PlacedTensor> placed;
    for (const auto& spec : specs) {
      all.push_back(sliced(spec, mesh));
      placed.emplace_back(spec, all.back());
    }
    const auto bucket = std::make_shared<const sharding::BucketLayout>(plan_bucket_layout(placed));
    for (std::size_t t = 0; t < specs.size(); ++t) {
      if (one_in(2))
        all[t].local = sharding::FlatShard{one_in(2) ? AxisNames{"shard", "context"} : AxisNames{"shard"}, bucket, t};
      else if (one_in(4))
        all[t].local = sharding::Owner{"shard", between(0, mesh->size("shard") - 1)};
    }
    return all;
  }

  State state(int ranks) {
    State state{.specs = specs(), .placements = {}};
    state.placements = placements(state.specs, mesh(ranks));
    return state;
  }

  bool one_in(int n) { return between(1, n) == 1; }

 private:
  sharding::Placement sliced(const sharding::TensorSpec& spec, const MeshPtr& mesh) {
    sharding::Placement placement{.mesh = mesh};
    const int stages = mesh->size("pipeline");
    if (stages > 1 && !one_in(4)) {
      placement.stage = sharding::Stage{{between(0, stages - 1)}};
      const int other = between(0, stages - 1);
      if (one_in(3) && other != placement.stage->coordinates[0]) placement.stage->coordinates.push_back(other);
    }
    if (spec.shape.empty() || one_in(3)) return placement;
    sharding::Shard shard{.axis = "tensor"};
    shard.dimension = static_cast<std::size_t>(between(0, static_cast<int>(spec.shape.size()) - 1));
    const std::int64_t entries = spec.shape[shard.dimension];
    if (one_in(3) && entries % 3 == 0) shard.pieces = 3;
    if (one_in(3) && entries / shard.pieces % 2 == 0) shard.unit = 2;
    if (one_in(3) && mesh->size("tensor") % 2 == 0) shard.copies = 2;
    shard.is_padded = one_in(3);
    placement.shards.push_back(shard);
    return placement;
  }

  Between between_;
};

}  // namespace ddprun::testing
