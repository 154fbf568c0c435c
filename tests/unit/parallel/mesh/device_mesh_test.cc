#include "worker/parallel/mesh/device_mesh.h"

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

// Returns the sum of the ranks' numbers in the mesh.
int sum_of_ranks(ProcessGroup& group, int rank) {
  std::vector<std::int64_t> sum{rank};
  group.allreduce(span_of(sum))->wait();
  return static_cast<int>(sum[0]);
}

}  // namespace

TEST_CASE("ranks of a mesh communicate along its axes") {
  run_ranks(8, [](ProcessGroup& all) {
    const DeviceMesh mesh(all, {{"pipeline", 2}, {"data", mesh_rest}, {"tensor", 2}, {"expert", 1}});
    for (const std::string name : {"pipeline", "data", "tensor", "expert"}) {
      const auto along = mesh.shape().ranks_along(all.rank(), {name});
      require(std::ssize(along) == mesh.size(name), "size " + name);
      require(along[static_cast<std::size_t>(mesh.coordinate(name))] == all.rank(), "coordinate " + name);
      require(mesh.group(name).size() == mesh.size(name), "group size " + name);
      require(mesh.group(name).rank() == mesh.coordinate(name), "rank in the group " + name);
      require(sum_of_ranks(mesh.group(name), all.rank()) == std::accumulate(along.begin(), along.end(), 0),
              "ranks of the group " + name);
    }
  });
}

TEST_CASE("an axis of all ranks has the mesh's group") {
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
    require(refusal == "the mesh has no axis depth", refusal);
  });
}

TEST_CASE("ranks of a mesh communicate over products of its axes") {
  run_ranks(8, [](ProcessGroup& all) {
    DeviceMesh mesh(all, {{"pipeline", 2}, {"shard", 2}, {"context", 2}, {"expert", 1}});
    for (const AxisNames& axes : {AxisNames{"pipeline", "context"}, {"shard", "context"}, {"pipeline", "shard"}}) {
      ProcessGroup& group = mesh.group_over(axes);
      const auto along = mesh.shape().ranks_along(all.rank(), axes);
      require(along[static_cast<std::size_t>(group.rank())] == all.rank(), "rank in the group");
      require(sum_of_ranks(group, all.rank()) == std::accumulate(along.begin(), along.end(), 0), "ranks of the group");
      require(&mesh.group_over({axes[1], "expert", axes[0]}) == &group, "one group for the same axes");
    }
    require(&mesh.group_over({"shard", "expert"}) == &mesh.group("shard"), "an axis of one rank adds none");
    require(&mesh.group_over({"context", "shard", "pipeline"}) == &all, "all axes");
    require(mesh.group_over({"expert"}).size() == 1, "one rank");
  });
}
