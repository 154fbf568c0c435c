#include "worker/trainer/config/model_axes.h"

#include <string>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

AxisRanks on_all_axes() {
  return {{"tensor", 2}, {"context", 3}, {"expert", 4}, {"pipeline", 5}};
}

}  // namespace

TEST_CASE("a mesh has stages outermost, and the ranks that exchange most as neighbours") {
  std::string text;
  for (const MeshAxis& axis : mesh_axes(on_all_axes())) text += axis.name + " " + std::to_string(axis.size) + ", ";
  CHECK(text == "pipeline 5, data 0, expert 4, context 3, tensor 2, ");
  CHECK(mesh_axes({}).size() == 1);
  CHECK(mesh_axes({}).front().name == "data");
}

TEST_CASE("axes of one rank are not in use") {
  CHECK(axes_in_use({}).empty());
  const auto used = axes_in_use({{"tensor", 2}, {"pipeline", 2}});
  REQUIRE(used.size() == 2);
  CHECK(used.front()->name() == "tensor");
  CHECK(used.back()->name() == "pipeline");
}

TEST_CASE("numbers of ranks are of axes that there are, and one where none is given") {
  AxisRanks ranks{{"tensor", 2}};
  CHECK(ranks.on("tensor") == 2);
  CHECK(ranks.on("context") == 1);
  CHECK_THROWS_WITH(ranks.on("tensors"), "there is no axis tensors");
  CHECK_THROWS_AS(ranks["stages"], Error);
  ranks["context"] = 1;
  CHECK(ranks == AxisRanks{{"tensor", 2}});
  CHECK_FALSE(ranks == AxisRanks{});
}

TEST_CASE("how many ranks share a model, samples or passes follows from what the ranks of axes have of their own") {
  CHECK(ranks_of_model(on_all_axes()) == 2 * 5);
  CHECK(ranks_of_sample(on_all_axes()) == 2 * 5 * 3);
  CHECK(ranks_of_replica(on_all_axes()) == 2 * 5 * 3 * 4);
  CHECK(ranks_of_replica({}) == 1);
}

TEST_CASE("ranks have parts of the state on all axes but that of positions") {
  CHECK(axes_with(&ModelAxis::shards_state) == AxisNames{"pipeline", "expert", "tensor"});
  CHECK(axes_with(&ModelAxis::has_own_gradients) == AxisNames{"expert", "context"});
  CHECK(shards_state({{"expert", 2}}));
  CHECK_FALSE(shards_state({{"context", 2}}));
}
