#include "worker/parallel/mesh/mesh_shape.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("the last axis of a mesh varies fastest") {
  const MeshShape mesh({{"pipeline", 2}, {"data", mesh_rest}, {"tensor", 2}}, 12);
  CHECK(mesh.size("data") == 3);
  CHECK(mesh.coordinates(0) == std::vector<int>{0, 0, 0});
  CHECK(mesh.coordinates(1) == std::vector<int>{0, 0, 1});
  CHECK(mesh.coordinates(2) == std::vector<int>{0, 1, 0});
  CHECK(mesh.coordinates(11) == std::vector<int>{1, 2, 1});
  CHECK(mesh.ranks_along(3, {"pipeline"}) == std::vector<int>{3, 9});
  CHECK(mesh.ranks_along(3, {"data"}) == std::vector<int>{1, 3, 5});
  CHECK(mesh.ranks_along(3, {"tensor"}) == std::vector<int>{2, 3});
}

TEST_CASE("the groups of every product of axes divide the ranks, whatever the sizes") {
  for (const auto& sizes : {std::vector<int>{1}, {5}, {2, 3}, {3, 1, 2}, {2, 2, 2, 2}}) {
    std::vector<MeshAxis> axes;
    for (const int size : sizes) axes.push_back({std::string(1, static_cast<char>('a' + axes.size())), size});
    const MeshShape mesh(axes, std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies()));
    for (unsigned chosen = 0; chosen < 1U << sizes.size(); ++chosen) {
      AxisNames names;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        if ((chosen >> i & 1U) != 0) names.push_back(axes[i].name);
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const auto along = mesh.ranks_along(rank, names);
        REQUIRE(std::ssize(along) == mesh.size(names));
        REQUIRE(std::ranges::is_sorted(along));
        REQUIRE(std::ranges::count(along, rank) == 1);
        for (const int other : along) {
          REQUIRE(mesh.ranks_along(other, names) == along);
          for (std::size_t i = 0; i < sizes.size(); ++i)
            if ((chosen >> i & 1U) == 0) REQUIRE(mesh.coordinate(other, i) == mesh.coordinate(rank, i));
        }
      }
    }
  }
}

TEST_CASE("a mesh has one axis at most that takes the rest") {
  CHECK(mesh_sizes({{"data", mesh_rest}, {"tensor", 4}}, 8) == std::vector<int>{2, 4});
  CHECK(mesh_sizes({{"data", mesh_rest}}, 1) == std::vector<int>{1});
  CHECK_THROWS_WITH(mesh_sizes({{"data", mesh_rest}, {"tensor", mesh_rest}}, 8),
                    "a mesh data x tensor: one axis at most has no size");
  CHECK_THROWS_WITH(mesh_sizes({{"data", mesh_rest}, {"tensor", 3}}, 8),
                    "a mesh data x tensor 3 needs a multiple of 3 ranks, and there are 8");
  CHECK_THROWS_WITH(mesh_sizes({{"data", mesh_rest}, {"tensor", 16}}, 8),
                    "a mesh data x tensor 16 needs a multiple of 16 ranks, and there are 8");
  CHECK_THROWS_WITH(mesh_sizes({{"data", 2}, {"tensor", 2}}, 8),
                    "a mesh data 2 x tensor 2 needs 4 ranks, and there are 8");
  CHECK_THROWS_WITH(mesh_sizes({{"data", 2}, {"data", 2}}, 4), "a mesh data 2 x data 2: two axes named data");
  CHECK_THROWS_WITH(mesh_sizes({{"data", -2}}, 4), "a mesh data -2: a size below 1");
}

TEST_CASE("a rank's place in a mesh has the axes in which there are several") {
  CHECK(mesh_place({{"pipeline", 1}, {"data", mesh_rest}, {"tensor", 2}}, 6, 5) == "data 2, tensor 1");
  CHECK(mesh_place({{"data", mesh_rest}}, 1, 0).empty());
}
