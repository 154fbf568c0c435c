#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// A named axis of a mesh; "dimension" is a word for tensors only.
struct MeshAxis {
  std::string name;
  int size = 1;  // mesh_rest: as many as the other axes leave; for at most one axis
};
inline constexpr int mesh_rest = 0;

// Names of axes of a mesh, in any order.
using AxisNames = std::vector<std::string>;

// A number of ranks as a grid with named axes, outermost first: neighbouring ranks differ in the last axis. Pure: it
// knows numbers of ranks and no process group.
//
// Threads: any number may read.
// Errors: the constructor throws Errc::usage naming the sizes and the number of ranks where they do not fit; the
//   methods throw Errc::usage for an axis that the mesh does not have.
class MeshShape {
 public:
  MeshShape(std::vector<MeshAxis> axes, int ranks);

  // The axes with their sizes.
  const std::vector<MeshAxis>& axes() const { return axes_; }
  int ranks() const { return ranks_; }
  std::size_t index_of(std::string_view axis) const;
  int size(std::string_view axis) const { return axes_[index_of(axis)].size; }
  // Returns those of these names that are axes here.
  AxisNames among(AxisNames names) const;
  // The number of coordinates that these axes have together.
  int size(const AxisNames& axes) const;

  // Coordinates are in the order of axes(). REQUIRES: 0 <= rank < ranks()
  std::vector<int> coordinates(int rank) const;
  int coordinate(int rank, std::size_t axis) const { return rank / strides_[axis] % axes_[axis].size; }
  int coordinate(int rank, std::string_view axis) const { return coordinate(rank, index_of(axis)); }

  // Returns the ranks that differ from this one only in these axes, itself included, ascending: a group for each
  // product of axes. Without an axis, only the rank itself.
  std::vector<int> ranks_along(int rank, const AxisNames& axes) const;

 private:
  std::vector<bool> chosen(const AxisNames& axes) const;

  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;  // by axis: between ranks that are neighbours there
  int ranks_ = 1;
};

// Returns the sizes of these axes for so many ranks. Throws what MeshShape throws.
std::vector<int> mesh_sizes(const std::vector<MeshAxis>& axes, int ranks);
// Returns a rank's coordinates on the axes of more than one rank as text: "data 1, tensor 1".
std::string mesh_place(const std::vector<MeshAxis>& axes, int ranks, int rank);

}  // namespace ddprun
