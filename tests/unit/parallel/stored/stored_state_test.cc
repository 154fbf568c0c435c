#include "worker/parallel/stored/stored_state.h"

#include <memory>

#include "common/error.h"
#include "worker/parallel/stored/placements_json.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::sharding;
using namespace ddprun::stored;

namespace {

using Axes = std::vector<MeshAxis>;

std::shared_ptr<const MeshShape> mesh_of(Axes axes, int ranks) {
  return std::make_shared<const MeshShape>(std::move(axes), ranks);
}

// A state with each kind of placement.
StoredState state_of_all_placements() {
  const auto mesh = mesh_of({{"pipeline", 2}, {"shard", 2}, {"tensor", 2}}, 8);
  const auto bucket =
      std::make_shared<const BucketLayout>(BucketLayout{.slots = {{"a", 0, 6}, {"b", 16, 4}}, .elements = 20});
  WriterChoice choice(8);
  StoredState state(8, false);
  state.of(Kind::model) =
      choice.choose({{{"a", {2, 6}, DType::float32},
                      {.mesh = mesh, .stage = Stage{{1}}, .shards = {{.axis = "tensor", .dimension = 1, .pieces = 3}}}},
                     {{"b", {5}, DType::bfloat16}, {.mesh = mesh, .shards = {{.axis = "tensor", .is_padded = true}}}},
                     {{"c", {}, DType::int64}, {.mesh = mesh, .stage = Stage{{0, 1}}}},
                     {{"d", {0, 3}, DType::float32}, {.mesh = mesh}}});
  state.of(Kind::optimizer) =
      choice.choose({{{"a.exp_avg", {6}, DType::float32}, {.mesh = mesh, .local = FlatShard{{"shard"}, bucket, 0}}},
                     {{"b.exp_avg", {4}, DType::float32}, {.mesh = mesh, .local = FlatShard{{"shard"}, bucket, 1}}},
                     {{"m.momentum", {4}, DType::float32}, {.mesh = mesh, .local = Owner{"shard", 1}}}});
  return state;
}

}  // namespace

TEST_CASE("the placements of a checkpoint read back as they were") {
  const auto state = state_of_all_placements();
  const auto text = to_json(state);
  const auto again = stored_state_from_json(text, "placements.json");
  CHECK(to_json(again) == text);
  for (const Kind kind : all_kinds) {
    const auto &before = state.of(kind), &after = again.of(kind);
    REQUIRE(after.tensors.size() == before.tensors.size());
    CHECK(after.writers == before.writers);
    for (std::size_t i = 0; i < before.tensors.size(); ++i)
      for (int rank = 0; rank < state.ranks(); ++rank)
        CHECK(after.tensors[i].held(rank) == before.tensors[i].held(rank));
  }
}

TEST_CASE("damaged placements are an error naming the file and what is wrong") {
  const auto text = to_json(state_of_all_placements());
  const auto error_of = [&](const std::string& part, const std::string& other) {
    auto damaged = text;
    const auto at = damaged.find(part);
    REQUIRE(at != std::string::npos);
    damaged.replace(at, part.size(), other);
    try {
      stored_state_from_json(damaged, "placements.json");
    } catch (const Error& e) {
      CHECK(e.code() == Errc::io);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(error_of("\"version\":1", "\"version\":2"),
             Catch::Contains("placements.json: not placements of version 1"));
  CHECK_THAT(error_of("\"mesh\":0", "\"mesh\":7"), Catch::Contains("placements.json: a mesh is not as it has to be"));
  CHECK_THAT(error_of("\"bucket\":0", "\"bucket\":1"), Catch::Contains("a bucket is not as it has to be"));
  CHECK_THAT(error_of("\"dtype\":\"F32\"", "\"dtype\":\"F33\""), Catch::Contains("tensor a has an unknown dtype"));
  CHECK_THAT(error_of("\"axis\":\"tensor\"", "\"axis\":\"sensor\""), Catch::StartsWith("placements.json: "));
  CHECK_THAT(error_of("\"shape\":[2,6]", "\"shape\":[2,7]"), Catch::StartsWith("placements.json: "));
  CHECK_THAT(error_of("\"ranks\":8", "\"ranks\":4"), Catch::StartsWith("placements.json: "));
  CHECK_THAT(error_of("\"writers\":[", "\"writers\":[0,"),
             Catch::Contains("tensor a has parts that these writers do not have"));
  CHECK_THAT(error_of("\"pieces\":3", "\"pieces\":4611686018427387904"), Catch::StartsWith("placements.json: "));
  CHECK_THAT(error_of("\"elements\":20", "\"elements\":9223372036854775807"), Catch::Contains("a bucket is not"));
  CHECK_THAT(error_of("[\"b\",16,4]", "[\"b\",9223372036854775807,4]"), Catch::Contains("a bucket is not"));
  CHECK_THAT(error_of("\"shape\":[2,6]", "\"shape\":[4611686018427387904,6]"),
             Catch::Contains("tensor a takes more bytes than the parts have"));
  CHECK_THAT(error_of(text, "{}"), Catch::Contains("member format is missing"));
}

TEST_CASE("placements of more than the parts can hold are an error") {
  const auto text = to_json(state_of_all_placements());
  const auto read = [&](const StoredLimits& limits) { stored_state_from_json(text, "placements.json", limits); };
  constexpr std::uint64_t bytes = 2 * 6 * 4 + 5 * 2 + 8 + (6 + 4 + 4) * 4;
  CHECK_NOTHROW(read({.ranks = 8, .bytes = bytes}));
  CHECK_THROWS_WITH(read({.ranks = 7, .bytes = bytes}),
                    "placements.json: member ranks is 8, expected at most 7, the number of parts");
  CHECK_THROWS_WITH(read({.ranks = 8, .bytes = bytes - 1}),
                    "placements.json: tensor m.momentum takes more bytes than the parts have");
  constexpr std::uint64_t before_scalar = 2 * 6 * 4 + 5 * 2;
  CHECK_THROWS_WITH(read({.ranks = 8, .bytes = before_scalar + 7}),
                    "placements.json: tensor c takes more bytes than the parts have");
}

TEST_CASE("each part has one writer, which has it, and all ranks write about as much") {
  constexpr int ranks = 4;
  const auto mesh = mesh_of({{"replicate", 2}, {"tensor", 2}}, ranks);
  std::vector<PlacedTensor> tensors;
  for (int i = 0; i < 20; ++i) {
    const auto name = "t" + std::to_string(i);
    tensors.push_back({{name, {4, 10 + i}, DType::float32}, {.mesh = mesh}});
    tensors.push_back({{name + "s", {4, 10 + i}, DType::float32}, {.mesh = mesh, .shards = {{.axis = "tensor"}}}});
  }
  const auto stored = WriterChoice(ranks).choose(tensors);
  std::vector<std::int64_t> bytes(ranks);
  std::int64_t all = 0;
  for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
    const auto parts = stored.tensors[i].parts();
    REQUIRE(stored.writers[i].size() == parts.size());
    all += stored.tensors[i].spec().elements() * 4;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto holders = stored.tensors[i].holders(parts[p]);
      CHECK(std::ranges::count(holders, stored.writers[i][p]) == 1);
      bytes[static_cast<std::size_t>(stored.writers[i][p])] += stored.tensors[i].local_bytes(stored.writers[i][p]);
    }
  }
  CHECK(bytes[0] + bytes[1] + bytes[2] + bytes[3] == all);
  for (const auto each : bytes) CHECK(each < all / ranks * 11 / 10);
}

TEST_CASE("of a tensor whose copies may differ the first one is written") {
  const auto mesh = mesh_of({{"replicate", 4}}, 4);
  const std::vector<PlacedTensor> tensors{{{"weight", {8}, DType::float32}, {.mesh = mesh}},
                                          {{"running_mean", {2}, DType::float32}, {.mesh = mesh}}};
  const auto is_buffer = [](const std::string& name) { return name == "running_mean"; };
  CHECK(WriterChoice(4).choose(tensors, is_buffer).writers == std::vector<std::vector<int>>{{0}, {0}});
  CHECK(WriterChoice(4).choose(tensors).writers == std::vector<std::vector<int>>{{0}, {1}});
}
