#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/mesh/mesh_shape.h"

namespace ddprun {

// The ranks of a group as a grid with named axes, like PyTorch's init_device_mesh(): the ranks that differ only in one
// axis are a group, and so are those that differ only in several axes if it is asked for.
//
//   DeviceMesh mesh(world->group(), {{"pipeline", 2}, {"data", mesh_rest}, {"tensor", 2}});   // 8 ranks: 2 x 2 x 2
//   mesh.group("tensor");       // ranks 0 and 1, 2 and 3, ...; this rank's number there is mesh.coordinate("tensor")
//   mesh.group_over({"data", "tensor"});   // ranks 0 to 3, and 4 to 7
//
// An axis of all ranks has the mesh's own group, and one of size 1 a group that uses no network.
//
// Ownership: the group outlives the mesh, and the mesh outlives the users of its groups.
// Threads: the constructor and group_over() are collective over all ranks; otherwise those of the groups.
// Errors: those of MeshShape, before anything is communicated; and those of the group.
class DeviceMesh {
 public:
  DeviceMesh(ProcessGroup& all, std::vector<MeshAxis> axes);

  const MeshShape& shape() const { return shape_; }
  ProcessGroup& all() const { return all_; }
  ProcessGroup& group(std::string_view axis) const { return *groups_[shape_.index_of(axis)]; }
  // Returns the group of the ranks that differ from this one only in these axes, ordered as in the mesh. The first call
  // with these axes makes it, in whatever order they are named; all ranks make the same calls.
  ProcessGroup& group_over(const AxisNames& axes);
  int size(std::string_view axis) const { return shape_.size(axis); }
  int coordinate(std::string_view axis) const { return shape_.coordinate(all_.rank(), axis); }
  // The sum of ProcessGroup::bytes_sent() of all groups.
  std::uint64_t bytes_sent() const;

 private:
  ProcessGroup& form(const std::vector<int>& ranks);

  ProcessGroup& all_;
  MeshShape shape_;
  std::vector<std::unique_ptr<ProcessGroup>> owned_;
  std::vector<ProcessGroup*> groups_;                           // by axis: one of owned_, or the mesh's
  std::map<std::vector<std::size_t>, ProcessGroup*> products_;  // by axes of more than one rank, ascending
};

}  // namespace ddprun
