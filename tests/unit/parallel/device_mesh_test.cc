#include "ddprun/worker/parallel/device_mesh.h"

#include <numeric>
#include <stdexcept>

#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// The sum of the ranks' numbers in the mesh.
int sum_of_ranks(ProcessGroup& group, int rank) {
  std::vector<std::int64_t> sum{rank};
  group.allreduce(span_of(sum))->wait();
  return static_cast<int>(sum[0]);
}

}  // namespace

TEST_CASE("the last dimension of a mesh varies fastest") {
  const std::vector<int> sizes = mesh_sizes({{"pipeline", 2}, {"data", 3}, {"tensor", 2}}, 12);
  CHECK(sizes == std::vector<int>{2, 3, 2});
  CHECK(mesh_coordinates(sizes, 0) == std::vector<int>{0, 0, 0});
  CHECK(mesh_coordinates(sizes, 1) == std::vector<int>{0, 0, 1});
  CHECK(mesh_coordinates(sizes, 2) == std::vector<int>{0, 1, 0});
  CHECK(mesh_coordinates(sizes, 11) == std::vector<int>{1, 2, 1});
  CHECK(mesh_ranks_along(sizes, 3, 0) == std::vector<int>{3, 9});
  CHECK(mesh_ranks_along(sizes, 3, 1) == std::vector<int>{1, 3, 5});
  CHECK(mesh_ranks_along(sizes, 3, 2) == std::vector<int>{2, 3});
}

TEST_CASE("the groups along a dimension divide the ranks, whatever the sizes") {
  for (const auto& sizes : {std::vector<int>{1}, {5}, {2, 3}, {3, 1, 2}, {2, 2, 2, 2}}) {
    const int ranks = std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies());
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto along = mesh_ranks_along(sizes, rank, d);
        REQUIRE(std::ssize(along) == sizes[d]);
        for (int i = 0; i < sizes[d]; ++i) {
          auto expected = mesh_coordinates(sizes, rank);
          expected[d] = i;
          CHECK(mesh_coordinates(sizes, along[static_cast<std::size_t>(i)]) == expected);
        }
      }
    }
  }
}

TEST_CASE("a mesh has one dimension at most that takes the rest") {
  CHECK(mesh_sizes({{"data", mesh_rest}, {"tensor", 4}}, 8) == std::vector<int>{2, 4});
  CHECK(mesh_sizes({{"data", mesh_rest}}, 1) == std::vector<int>{1});
  CHECK_THROWS_WITH(mesh_sizes({{"data", mesh_rest}, {"tensor", mesh_rest}}, 8),
                    "a mesh data x tensor: one dimension at most has no size");
  CHECK_THROWS_WITH(mesh_sizes({{"data", mesh_rest}, {"tensor", 3}}, 8),
                    "a mesh data x tensor 3 needs a multiple of 3 ranks, and there are 8");
  CHECK_THROWS_WITH(mesh_sizes({{"data", mesh_rest}, {"tensor", 16}}, 8),
                    "a mesh data x tensor 16 needs a multiple of 16 ranks, and there are 8");
  CHECK_THROWS_WITH(mesh_sizes({{"data", 2}, {"tensor", 2}}, 8),
                    "a mesh data 2 x tensor 2 needs 4 ranks, and there are 8");
  CHECK_THROWS_WITH(mesh_sizes({{"data", 2}, {"data", 2}}, 4), "a mesh data 2 x data 2: two dimensions named data");
  CHECK_THROWS_WITH(mesh_sizes({{"data", -2}}, 4), "a mesh data -2: a size below 1");
}

TEST_CASE("a rank's place in a mesh has the dimensions in which there are several") {
  CHECK(mesh_place({{"pipeline", 1}, {"data", mesh_rest}, {"tensor", 2}}, 6, 5) == "data 2, tensor 1");
  CHECK(mesh_place({{"data", mesh_rest}}, 1, 0).empty());
}

TEST_CASE("ranks of a mesh communicate along its dimensions") {
  run_ranks(8, [](ProcessGroup& all) {
    const DeviceMesh mesh(all, {{"pipeline", 2}, {"data", mesh_rest}, {"tensor", 2}, {"expert", 1}});
    const std::vector<int> sizes{2, 2, 2, 1};
    std::size_t d = 0;
    for (const std::string name : {"pipeline", "data", "tensor", "expert"}) {
      const auto along = mesh_ranks_along(sizes, all.rank(), d);
      require(mesh.size(name) == sizes[d], "size " + name);
      require(mesh.coordinate(name) == mesh_coordinates(sizes, all.rank())[d], "coordinate " + name);
      require(mesh.group(name).size() == mesh.size(name), "group size " + name);
      require(mesh.group(name).rank() == mesh.coordinate(name), "rank in the group " + name);
      require(sum_of_ranks(mesh.group(name), all.rank()) == std::accumulate(along.begin(), along.end(), 0),
              "ranks of the group " + name);
      ++d;
    }
  });
}

TEST_CASE("a dimension of all ranks has the mesh's group") {
  run_ranks(2, [](ProcessGroup& all) {
    const DeviceMesh mesh(all, {{"data", mesh_rest}, {"tensor", 1}});
    require(&mesh.group("data") == &all && &mesh.all() == &all, "all ranks");
    require(mesh.group("tensor").size() == 1, "one rank");
    std::string refusal;
    try {
      mesh.group("depth");
    } catch (const Error& e) {
      refusal = e.what();
    }
    require(refusal == "the mesh has no dimension depth", refusal);
  });
}
