#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/dtype.h"
#include "worker/parallel/mesh/mesh_shape.h"

// The placement of a tensor on a mesh, in the terms of PyTorch's DTensor and OneFlow's SBP. All of it is data and
// arithmetic: every rank knows the parts of all others without asking them.
namespace ddprun::sharding {

// A tensor as a single process would have it.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // empty for a scalar
  DType dtype = DType::float32;

  std::int64_t elements() const;
};

// Elements [begin, end) of a tensor in row-major order.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// Elements of the whole tensor that follow one another in a rank's part of it, too.
struct HeldRange {
  IndexRange whole;
  std::int64_t local = 0;  // their first element's index in the part
  friend bool operator==(const HeldRange&, const HeldRange&) = default;
};

// The tensor exists only at these coordinates of the axis "pipeline": several for tied parameters.
struct Stage {
  std::vector<int> coordinates;
};

// Each coordinate of an axis ("tensor", "expert") has a slice of a dimension: columns, heads, experts. As with
// torch.chunk(), slices are of the same size except the last ones, which may be smaller or empty.
struct Shard {
  std::string axis;
  std::size_t dimension = 0;
  std::int64_t pieces = 1;  // equal parts of the dimension, each sliced alike: 3 for query, key, value
  std::int64_t unit = 1;    // entries that stay together, such as the columns of a head
  int copies = 1;           // so many neighbours have the same slice, if heads are fewer than ranks
  bool is_padded = false;   // all local parts are as large as the first: a vocabulary that the ranks do not divide
};

// The local slices of several tensors, one after the other, as one range of elements that is sharded among ranks
// (ZeRO). Offsets and sizes are the same at all ranks, whatever the sizes of their slices. A function of the plan.
struct BucketLayout {
  struct Slot {
    std::string tensor;
    std::int64_t offset = 0;
    std::int64_t count = 0;  // that of the largest local slice
  };
  std::vector<Slot> slots;
  std::int64_t elements = 0;  // padding included
};

// A range of the elements of a bucket, in which the local slice lies, for each coordinate of these axes. The parts are
// those of shard_of() (reducer/shards.h), in the order in which the axes are named, outermost first.
struct FlatShard {
  AxisNames axes;
  std::shared_ptr<const BucketLayout> bucket;
  std::size_t slot = 0;  // that of the tensor, or of the parameter for which an optimizer keeps it
};

// One coordinate of an axis has the whole local slice, for optimizers that need whole matrices.
struct Owner {
  std::string axis;
  int coordinate = 0;
};

struct Replicate {};

// The place of a tensor's elements: first the stage, then slices of dimensions, then a part of what is left of it.
// On an axis that none of them names the tensor is replicated.
struct Placement {
  std::shared_ptr<const MeshShape> mesh;
  std::optional<Stage> stage = {};
  std::vector<Shard> shards = {};  // for different dimensions, on different axes
  std::variant<Replicate, FlatShard, Owner> local = {};
};

// A tensor with its placement: computes what each rank has of it. Pure functions.
//
// Threads: any number may read.
// Errors: the constructor throws Errc::usage naming the tensor where tensor and placement do not fit, and those of
//   MeshShape.
class PlacedTensor {
 public:
  // A part that some ranks have alike.
  struct Part {
    std::vector<int> slices;  // by Shard
    int flat = -1;            // the coordinate of the FlatShard; -1 if there is none
    std::vector<HeldRange> ranges;
  };

  // By axis of the mesh: some of its coordinates, ascending except those of a Stage; empty means all of them.
  using Coordinates = std::vector<std::vector<int>>;

  PlacedTensor(TensorSpec spec, Placement placement);

  const TensorSpec& spec() const { return spec_; }
  const Placement& placement() const { return placement_; }

  // Returns false at other stages, and at ranks that do not own the tensor. True for a rank whose part is empty.
  bool exists_at(int rank) const;
  // Returns what a rank has of the tensor, ascending; padding is no element of it.
  std::vector<HeldRange> held(int rank) const;
  // Returns the shape of the part in the rank's memory, padding included: one dimension for a FlatShard, maybe empty.
  // REQUIRES: exists_at(rank)
  std::vector<std::int64_t> local_shape(int rank) const;
  std::int64_t local_elements(int rank) const;  // 0 where it does not exist
  std::int64_t local_bytes(int rank) const;

  // Returns the ranks that have the same part, ascending, this one included. Empty if the tensor does not exist.
  std::vector<int> holders(int rank) const;
  // Returns all parts that have elements; each element is in one of them.
  std::vector<Part> parts() const;
  std::vector<int> holders(const Part& part) const;
  // Returns the same ranks in short: those that have one of these coordinates on each axis.
  Coordinates coordinates(const Part& part) const;

 private:
  struct Slice {  // a slice of one dimension: entries that follow one another
    std::int64_t whole = 0, local = 0, count = 0;
  };
  std::vector<int> slices_of(int rank) const;
  int flat_of(int rank) const;
  std::vector<Slice> slice_entries(std::size_t dimension, const std::vector<int>& slices) const;
  std::vector<std::int64_t> slice_shape(const std::vector<int>& slices) const;
  std::vector<HeldRange> slice_ranges(const std::vector<int>& slices) const;
  IndexRange flat_range(int flat, std::int64_t slice_elements) const;
  std::vector<int> ranks_with(const Coordinates& coordinates) const;
  Coordinates coordinates_of(const std::vector<int>& slices, int flat) const;

  TensorSpec spec_;
  Placement placement_;
};

}  // namespace ddprun::sharding
