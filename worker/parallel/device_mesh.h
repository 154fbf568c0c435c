#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/worker/comm/process_group.h"

namespace ddprun {

// A named dimension of a mesh.
struct MeshDimension {
  std::string name;
  int size = 1;  // mesh_rest: as many as the other dimensions leave; in one dimension at most
};
inline constexpr int mesh_rest = 0;

// The ranks of a group as a grid with named dimensions, outermost first, as PyTorch's init_device_mesh(): neighbouring
// ranks differ in the last dimension. The ranks that differ in one dimension alone are a group.
//
//   DeviceMesh mesh(world->group(), {{"pipeline", 2}, {"data", mesh_rest}, {"tensor", 2}});   // 8 ranks: 2 x 2 x 2
//   mesh.group("tensor");       // ranks 0 and 1, 2 and 3, ...; this rank's number there is mesh.coordinate("tensor")
//
// A dimension of all ranks has the mesh's own group, and one of size 1 a group that uses no network.
//
// Ownership: all outlives the mesh, and the mesh whoever uses its groups.
// Threads: the constructor is collective; afterwards as the groups.
// Errors: the constructor throws Errc::usage naming the sizes and the number of ranks where they do not fit, before it
//   communicates; and the errors of the group. Errc::usage for a dimension that the mesh does not have.
class DeviceMesh {
 public:
  DeviceMesh(ProcessGroup& all, std::vector<MeshDimension> dimensions);

  ProcessGroup& all() const { return all_; }
  ProcessGroup& group(std::string_view dimension) const { return *at(dimension).group; }
  int size(std::string_view dimension) const { return at(dimension).size; }
  int coordinate(std::string_view dimension) const { return at(dimension).coordinate; }
  // By all groups: ProcessGroup::bytes_sent().
  std::uint64_t bytes_sent() const;

 private:
  struct Axis {
    std::string name;
    int size = 1;
    int coordinate = 0;
    std::unique_ptr<ProcessGroup> owned;
    ProcessGroup* group = nullptr;  // owned, or the mesh's
  };
  const Axis& at(std::string_view dimension) const;

  ProcessGroup& all_;
  std::vector<Axis> axes_;  // outermost first
};

// The arithmetic: pure functions.

// The sizes of these dimensions for so many ranks. Throws Errc::usage where they do not fit.
std::vector<int> mesh_sizes(const std::vector<MeshDimension>& dimensions, int ranks);
// Of a rank, by dimension.
std::vector<int> mesh_coordinates(const std::vector<int>& sizes, int rank);
// "data 1, tensor 1": a rank's coordinates in dimensions of more than one rank, for people.
std::string mesh_place(const std::vector<MeshDimension>& dimensions, int ranks, int rank);
// The ranks that differ from this one in a dimension alone, itself included, in its order.
std::vector<int> mesh_ranks_along(const std::vector<int>& sizes, int rank, std::size_t dimension);

}  // namespace ddprun
