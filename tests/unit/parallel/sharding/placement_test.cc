#include "worker/parallel/sharding/placement.h"

#include <algorithm>
#include <set>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/sharding/bucket_plan.h"
#include "tests/unit/parallel/sharding/seeded_layouts.h"

using namespace ddprun;
using namespace ddprun::sharding;
using namespace ddprun::testing;

namespace {

using Sizes = std::vector<std::int64_t>;
using Ranks = std::vector<int>;
using Held = std::vector<HeldRange>;

MeshPtr mesh_of(std::vector<MeshAxis> axes) {
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  return std::make_shared<const MeshShape>(std::move(axes), ranks);
}

const MeshPtr mesh = mesh_of({{"pipeline", 2}, {"replicate", 2}, {"shard", 2}, {"tensor", 4}});  // 32 ranks

}  // namespace

TEST_CASE("a tensor whose placement names no axis is whole at every rank, and counts once") {
  const PlacedTensor tensor({"w", {3, 4}}, {.mesh = mesh});
  for (int rank = 0; rank < 32; ++rank) {
    CHECK(tensor.held(rank) == Held{{{0, 12}, 0}});
    CHECK(tensor.holders(rank).size() == 32);
    CHECK(counts_once_at(tensor, rank) == (rank == 0));
    CHECK(tensor.local_bytes(rank) == 48);
  }
}

TEST_CASE("a scalar is one element") {
  const PlacedTensor tensor({"step", {}, DType::int64}, {.mesh = mesh});
  CHECK(tensor.held(5) == Held{{{0, 1}, 0}});
  CHECK(tensor.local_shape(5).empty());
  CHECK(tensor.local_bytes(5) == 8);
}

TEST_CASE("a tensor of a stage exists at its coordinates of the pipeline alone") {
  const PlacedTensor tensor({"w", {4}}, {.mesh = mesh, .stage = Stage{{1}}});
  CHECK_FALSE(tensor.exists_at(15));
  CHECK(tensor.held(15).empty());
  CHECK(tensor.local_bytes(15) == 0);
  CHECK(tensor.holders(15).empty());
  CHECK(tensor.exists_at(16));
  CHECK(counts_once_at(tensor, 16));
  CHECK_FALSE(counts_once_at(tensor, 0));
}

TEST_CASE("a slice of columns is a range of each row") {
  const PlacedTensor tensor({"w", {2, 8}}, {.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 1}}});
  CHECK(tensor.held(1) == Held{{{2, 4}, 0}, {{10, 12}, 2}});
  CHECK(tensor.local_shape(1) == Sizes{2, 2});
  CHECK(tensor.holders(1) == Ranks{1, 5, 9, 13, 17, 21, 25, 29});
}

TEST_CASE("each of several pieces is sliced alike") {
  // The tensor has query, key and value of four heads of one row each.
  const PlacedTensor tensor({"c_attn", {12, 2}},
                            {.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0, .pieces = 3}}});
  CHECK(tensor.held(2) == Held{{{4, 6}, 0}, {{12, 14}, 2}, {{20, 22}, 4}});
  CHECK(tensor.local_shape(2) == Sizes{3, 2});
}

TEST_CASE("slices may be of different sizes, and empty") {
  const PlacedTensor five({"w", {5}}, {.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0}}});
  CHECK(five.held(0) == Held{{{0, 2}, 0}});
  CHECK(five.held(2) == Held{{{4, 5}, 0}});
  CHECK(five.held(3).empty());
  CHECK(five.exists_at(3));
  CHECK(five.local_shape(3) == Sizes{0});
  const PlacedTensor heads({"w", {12}}, {.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0, .unit = 2}}});
  CHECK(heads.held(1) == Held{{{4, 8}, 0}});
}

TEST_CASE("padding makes the parts of a vocabulary equal, and is no element of it") {
  const PlacedTensor tensor({"wte", {5, 3}},
                            {.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0, .is_padded = true}}});
  CHECK(tensor.local_shape(2) == Sizes{2, 3});
  CHECK(tensor.held(2) == Held{{{12, 15}, 0}});
  CHECK(tensor.local_shape(3) == Sizes{2, 3});
  CHECK(tensor.held(3).empty());
}

TEST_CASE("each piece of a padded dimension has its own padding") {
  const sharding::Shard halves{.axis = "tensor", .dimension = 0, .pieces = 2, .copies = 2, .is_padded = true};
  const PlacedTensor tensor({"w", {6}}, {.mesh = mesh, .shards = {halves}});
  CHECK(tensor.held(0) == Held{{{0, 2}, 0}, {{3, 5}, 2}});
  CHECK(tensor.local_shape(2) == Sizes{4});
  CHECK(tensor.held(2) == Held{{{2, 3}, 0}, {{5, 6}, 2}});
}

TEST_CASE("where heads are fewer than ranks, neighbours have copies") {
  const Placement placement{.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0, .copies = 2}}};
  const PlacedTensor tensor({"key", {4}}, placement);
  CHECK(tensor.held(0) == Held{{{0, 2}, 0}});
  CHECK(tensor.held(1) == tensor.held(0));
  CHECK(tensor.held(3) == Held{{{2, 4}, 0}});
  CHECK(counts_once_at(tensor, 2));
  CHECK_FALSE(counts_once_at(tensor, 3));
}

TEST_CASE("a flat shard is a range of the bucket in which the local slice lies") {
  const Placement sliced{.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 1}}};
  const TensorSpec a{"a", {4, 8}}, b{"b", {8, 16}};
  const auto bucket = std::make_shared<const BucketLayout>(plan_bucket_layout({{a, sliced}, {b, sliced}}));
  REQUIRE(bucket->slots[1].offset == 16);  // a's slice has 8 elements
  REQUIRE(bucket->elements == 48);         // b's has 32
  Placement flat = sliced;
  flat.local = FlatShard{{"shard"}, bucket, 1};
  const PlacedTensor tensor(b, flat);
  // Elements 0 to 31 of the bucket are the first rank's: the first four rows of b's slice.
  CHECK(tensor.local_shape(1) == Sizes{16});
  CHECK(tensor.held(1) == Held{{{4, 8}, 0}, {{20, 24}, 4}, {{36, 40}, 8}, {{52, 56}, 12}});
  CHECK(tensor.held(5) == Held{{{68, 72}, 0}, {{84, 88}, 4}, {{100, 104}, 8}, {{116, 120}, 12}});
  CHECK(tensor.holders(5) == Ranks{5, 13, 21, 29});
  flat.local = FlatShard{{"shard"}, bucket, 0};
  CHECK(PlacedTensor(a, flat).local_shape(5) == Sizes{0});
}

TEST_CASE("an owner has the whole local slice") {
  const PlacedTensor tensor({"w", {4}}, {.mesh = mesh, .local = Owner{"shard", 1}});
  CHECK_FALSE(tensor.exists_at(0));
  CHECK(tensor.held(4) == Held{{{0, 4}, 0}});
  CHECK(counts_once_at(tensor, 4));
  CHECK(tensor.holders(4).size() == 16);
}

TEST_CASE("a placement that does not fit is refused with the tensor's name") {
  const auto refuse = [](const Placement& placement) { PlacedTensor({"w", {6, 4}}, placement); };
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 2}}}),
                    "w has no dimension 2 to shard");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .shards = {{.axis = "depth", .dimension = 1}}}),
                    "the mesh has no axis depth");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0, .pieces = 4}}}),
                    "dimension 0 of w has 6 entries, which are not 4 pieces of units of 1");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0, .copies = 3}}}),
                    "3 copies of each slice of w do not divide the 4 ranks of axis tensor");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0}}, .local = Owner{"tensor", 0}}),
                    "the placement of w names the axis tensor twice");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .local = Owner{"shard", 2}}), "axis shard has no coordinate 2 to own w");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .stage = Stage{{2}}}), "there is no stage 2 for w");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .stage = Stage{}}), "w is at no stage");
  CHECK_THROWS_WITH(refuse({.mesh = mesh, .stage = Stage{{1, 1}}}), "w is at stage 1 twice");
}

// The answers to different questions have to agree, for many placements.
TEST_CASE("the parts of a tensor divide it, and each rank has the part of its holders") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SeededLayouts random(seed);
    const auto state = random.state(random.between(1, 16));
    for (std::size_t t = 0; t < state.specs.size(); ++t) {
      INFO("seed " << seed << ", tensor " << state.specs[t].name);
      const PlacedTensor tensor(state.specs[t], state.placements[t]);
      const int ranks = tensor.placement().mesh->ranks();
      std::vector<int> covered(static_cast<std::size_t>(tensor.spec().elements()));
      std::set<int> with_elements;
      for (const auto& part : tensor.parts()) {
        for (const HeldRange& range : part.ranges)
          for (std::int64_t i = range.whole.begin; i < range.whole.end; ++i) ++covered[static_cast<std::size_t>(i)];
        for (const int rank : tensor.holders(part)) {
          REQUIRE(tensor.held(rank) == part.ranges);
          REQUIRE(tensor.holders(rank) == tensor.holders(part));
          REQUIRE(with_elements.insert(rank).second);
        }
      }
      REQUIRE(std::ranges::all_of(covered, [](int times) { return times == 1; }));
      std::int64_t counted = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto held = tensor.held(rank);
        REQUIRE(held.empty() == !with_elements.contains(rank));
        std::int64_t elements = 0, end = 0;
        for (const HeldRange& range : held) {
          REQUIRE(range.local >= end);
          end = range.local + range.whole.count();
          elements += range.whole.count();
        }
        REQUIRE(end <= tensor.local_elements(rank));
        if (counts_once_at(tensor, rank)) counted += elements;
      }
      REQUIRE(counted == tensor.spec().elements());
    }
  }
}
