#include "worker/parallel/sharding/sharded_state.h"

#include <cstring>
#include <stdexcept>

#include "worker/parallel/mesh/device_mesh.h"
#include "worker/parallel/sharding/sharded_sum.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/unit/parallel/sharding/seeded_layouts.h"

using namespace ddprun;
using namespace ddprun::sharding;
using namespace ddprun::testing;

namespace {

// Returns element i of a whole tensor.
double element(std::size_t tensor, std::int64_t i, double factor = 1) {
  return factor * static_cast<double>(1 + 1000 * static_cast<std::int64_t>(tensor) + i);
}

void write(Tensor tensor, std::int64_t at, double value) {
  if (tensor.dtype() == DType::float32)
    static_cast<float*>(tensor.raw())[at] = static_cast<float>(value);
  else
    static_cast<double*>(tensor.raw())[at] = value;
}

std::vector<PlacedTensor> placed(const SeededLayouts::State& state) {
  std::vector<PlacedTensor> all;
  for (std::size_t t = 0; t < state.specs.size(); ++t) all.emplace_back(state.specs[t], state.placements[t]);
  return all;
}

// Returns a rank's parts; padding is zero.
NamedTensors parts(const std::vector<PlacedTensor>& tensors, int rank, double factor = 1) {
  NamedTensors all;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (!tensors[t].exists_at(rank)) continue;
    Tensor part = Tensor::zeros(Shape(tensors[t].local_shape(rank)), tensors[t].spec().dtype);
    for (const HeldRange& range : tensors[t].held(rank))
      for (std::int64_t i = 0; i < range.whole.count(); ++i)
        write(part, range.local + i, element(t, range.whole.begin + i, factor));
    all.emplace_back(tensors[t].spec().name, part);
  }
  return all;
}

NamedTensors whole(const std::vector<PlacedTensor>& tensors, double factor = 1) {
  NamedTensors all;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    all.emplace_back(tensors[t].spec().name, Tensor::zeros(Shape(tensors[t].spec().shape), tensors[t].spec().dtype));
    for (std::int64_t i = 0; i < tensors[t].spec().elements(); ++i) write(all.back().second, i, element(t, i, factor));
  }
  return all;
}

void require_same(const NamedTensors& found, const NamedTensors& expected, const std::string& what) {
  if (found.size() != expected.size()) throw std::runtime_error(what + ": another number of tensors");
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [name, tensor] = found[i];
    const Tensor& other = expected[i].second;
    if (name != expected[i].first || tensor.shape() != other.shape() || tensor.dtype() != other.dtype())
      throw std::runtime_error(what + ": " + name + " is another tensor than " + expected[i].first);
    if (std::memcmp(tensor.raw(), other.raw(), other.bytes()) != 0)
      throw std::runtime_error(what + ": another value of " + name);
  }
}

}  // namespace

TEST_CASE("a state of any placements is gathered whole, and scattered into the same parts") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    SeededLayouts random(seed);
    const auto tensors = placed(random.state(random.between(1, 8)));
    REQUIRE_NOTHROW(run_ranks(tensors[0].placement().mesh->ranks(), [&](ProcessGroup& group) {
      const NamedTensors own = parts(tensors, group.rank());
      const ShardedState state(tensors, own, group);
      require_same(state.gather(), group.rank() == 0 ? whole(tensors) : NamedTensors{}, "gather");
      NamedTensors read = state.whole_like();
      const NamedTensors other = whole(tensors, 3);
      for (std::size_t t = 0; t < read.size(); ++t) read[t].second.copy_from(other[t].second);
      state.scatter(read);
      require_same(own, parts(tensors, group.rank(), 3), "scatter");
    }));
  }
}

TEST_CASE("a state moves to other placements of the same ranks") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    SeededLayouts random(seed);
    const auto before = random.state(random.between(1, 8));
    const int ranks = before.placements[0].mesh->ranks();
    const auto from = placed(before), to = placed({before.specs, random.placements(before.specs, random.mesh(ranks))});
    if (to[0].placement().mesh->ranks() != ranks) continue;
    REQUIRE_NOTHROW(run_ranks(ranks, [&](ProcessGroup& group) {
      const NamedTensors own = parts(to, group.rank(), 0);
      ShardedState(from, parts(from, group.rank()), group).move_to(ShardedState(to, own, group));
      require_same(own, parts(to, group.rank()), "move");
    }));
  }
}

TEST_CASE("what rank 0 has whole is gathered without a copy") {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"pipeline", 2}}, 2);
  const std::vector<PlacedTensor> tensors{{{"first", {3}}, {.mesh = mesh, .stage = Stage{{0}}}},
                                          {{"last", {2}}, {.mesh = mesh, .stage = Stage{{1}}}}};
  run_ranks(2, [&](ProcessGroup& group) {
    const NamedTensors own = parts(tensors, group.rank());
    const NamedTensors all = ShardedState(tensors, own, group).gather();
    if (group.rank() == 0 && (all[0].second.raw() != own[0].second.raw() || all.size() != 2))
      throw std::runtime_error("a copy");
  });
}

TEST_CASE("tensors of an optimizer lie as their parameter, and its counters are replicated where it exists") {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"pipeline", 2}, {"tensor", 2}}, 4);
  ParameterPlacements placements;
  placements.add({"fc.weight", {4, 2}},
                 {.mesh = mesh, .stage = Stage{{1}}, .shards = {{.axis = "tensor", .dimension = 0}}});
  placements.add({"out.weight", {2}}, {.mesh = mesh, .stage = Stage{{0}}});
  const PlacedTensor average = placements.of_tensor("fc.weight.exp_avg", DType::float64, false);
  CHECK(average.spec().shape == std::vector<std::int64_t>{4, 2});
  CHECK(average.local_bytes(3) == 4 * 8);
  CHECK(average.local_bytes(1) == 0);
  const PlacedTensor counter = placements.of_tensor("fc.weight.steps", DType::int64, true);
  CHECK(counter.local_bytes(3) == 8);
  CHECK(counter.holders(3) == std::vector<int>{2, 3});
  CHECK_FALSE(counter.exists_at(0));
  CHECK(placements.of_tensor("fc.weight", DType::float32, false).local_bytes(2) == 4 * 4);
  CHECK_THROWS_WITH(placements.of_tensor("fc.bias.exp_avg", DType::float32, false),
                    Catch::Contains("there is no placement of fc.bias"));
}

// Each stage may have tensors of its own kinds.
TEST_CASE("all stages know the tensors of all, in the same order") {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"pipeline", 2}}, 2);
  ParameterPlacements placements;
  placements.add({"a", {2}}, {.mesh = mesh, .stage = Stage{{0}}});
  placements.add({"tied", {3}}, {.mesh = mesh, .stage = Stage{{0, 1}}});
  placements.add({"b", {4}}, {.mesh = mesh, .stage = Stage{{1}}});
  run_ranks(2, [&](ProcessGroup& group) {
    NamedTensors own;
    if (group.rank() == 0) own = {{"a.momentum", Tensor::zeros({2})}, {"tied.momentum", Tensor::zeros({3})}};
    if (group.rank() == 1) own = {{"tied.momentum", Tensor::zeros({3})}, {"b.sum", Tensor::zeros({4}, DType::float64)}};
    const auto all = placed_tensors(placements, own, &group);
    std::vector<std::string> names;
    for (const PlacedTensor& each : all) names.push_back(each.spec().name);
    if (names != std::vector<std::string>{"a.momentum", "tied.momentum", "b.sum"}) throw std::runtime_error("names");
    if (all[2].spec().dtype != DType::float64 || !all[1].exists_at(1)) throw std::runtime_error("tensors");
  });
}

// Eight ranks have a tensor that is sharded three times, one that tensor-parallel ranks share, and one of both stages.
TEST_CASE("a sum over sharded tensors counts each element once, at all ranks with the same bits") {
  std::vector<double> sums(8), holds(8);
  run_ranks(8, [&](ProcessGroup& group) {
    const DeviceMesh device_mesh(group, {{"pipeline", 2}, {"shard", 2}, {"tensor", 2}});
    const auto mesh = std::make_shared<const MeshShape>(device_mesh.shape());
    const Placement sliced{.mesh = mesh, .stage = Stage{{0}}, .shards = {{.axis = "tensor", .dimension = 0}}};
    const Placement shared{.mesh = mesh, .stage = Stage{{1}}};
    const Placement tied{.mesh = mesh, .stage = Stage{{0, 1}}};
    const std::vector<TensorSpec> specs{{"sliced", {64}}, {"shared", {40}}, {"tied", {48}}};
    std::vector<Placement> placements{sliced, shared, tied};
    for (std::size_t t = 0; t < specs.size(); ++t)
      placements[t].local = FlatShard{
          {"shard"}, std::make_shared<const BucketLayout>(plan_bucket_layout({{specs[t], placements[t]}})), 0};
    std::vector<PlacedTensor> own;
    for (std::size_t t = 0; t < specs.size(); ++t)
      if (const PlacedTensor tensor(specs[t], placements[t]); tensor.exists_at(group.rank())) own.push_back(tensor);
    const ShardedSum sum(own, group.rank(),
                         {{"tensor", &device_mesh.group("tensor")},
                          {"shard", &device_mesh.group("shard")},
                          {"pipeline", &device_mesh.group("pipeline")}});
    const auto rank = static_cast<std::size_t>(group.rank());
    sums[rank] = sum.sum([&](std::size_t g) {
      double value = 0;
      for (const std::size_t i : sum.groups()[g])
        for (const HeldRange& range : own[i].held(group.rank()))
          for (std::int64_t e = range.whole.begin; e < range.whole.end; ++e) value += static_cast<double>(e);
      return value;
    });
    holds[rank] = sum.sum_over_ranks(group.rank() == 5 ? 1 : 0);
    if (!sum.is_sharded()) throw std::runtime_error("not sharded");
  });
  for (const double each : sums) CHECK(each == 64 * 63 / 2 + 40 * 39 / 2 + 48 * 47 / 2);
  for (const double each : holds) CHECK(each == 1);
}
