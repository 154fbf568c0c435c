#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/parallel/mesh/mesh_shape.h"

// How a tensor lies on a mesh, in the words of PyTorch's DTensor and OneFlow's SBP. All of it is data and arithmetic:
// every rank knows the parts of all others without asking them.
namespace ddprun::sharding {

// A tensor as one process has it.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // empty: a scalar
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

// Elements of the whole tensor that lie one behind the other in a rank's part of it, too.
struct HeldRange {
  IndexRange whole;
  std::int64_t local = 0;  // where they begin in the part, in elements
  friend bool operator==(const HeldRange&, const HeldRange&) = default;
};

// The tensor exists at these coordinates of the axis "pipeline" alone: several for tied parameters.
struct Stage {
  std::vector<int> coordinates;
};

// Each coordinate of an axis ("tensor", "expert") has a slice of a dimension: columns, heads, experts. As
// torch.chunk() does it, slices are of the same size but for the last ones, which may be smaller or empty.
struct Shard {
  std::string axis;
  std::size_t dimension = 0;
  std::int64_t pieces = 1;  // equal ones of which the dimension consists, each sliced alike: 3 for query, key, value
  std::int64_t unit = 1;    // entries that stay together, such as the columns of a head
  int copies = 1;           // so many neighbours have the same slice, where heads are fewer than ranks
  bool is_padded = false;   // all local parts are as large as the first: a vocabulary that the ranks do not divide
};

// The local slices of several tensors, one behind the other, as one range of elements that is divided among ranks
// (ZeRO). Offsets and sizes are the same at all ranks, whatever the sizes of their slices. A function of the plan.
struct BucketLayout {
  struct Slot {
    std::string tensor;
    std::int64_t offset = 0;
    std::int64_t count = 0;  // of the largest local slice
  };
  std::vector<Slot> slots;
  std::int64_t elements = 0;  // padding included
};

// A range of the elements of a bucket, in which the local slice lies, for each coordinate of these axes. The parts are
// those of shard_of() (reducer/shards.h), in the order in which the axes are named, outermost first.
struct FlatShard {
  AxisNames axes;
  std::shared_ptr<const BucketLayout> bucket;
  std::size_t slot = 0;  // the tensor's, or that of the parameter of which an optimizer keeps it
};

// One coordinate of an axis has the whole local slice: for optimizers that need whole matrices.
struct Owner {
  std::string axis;
  int coordinate = 0;
};

struct Replicate {};

// Where the elements of a tensor are: first the stage, then slices of dimensions, then a part of what is left of it.
// On an axis that none of them names the tensor is replicated. A gradient before its reduction is Partial on some of
// these axes: the ranks have summands of it (never a mean).
struct Placement {
  std::shared_ptr<const MeshShape> mesh;
  std::optional<Stage> stage = {};
  std::vector<Shard> shards = {};  // of different dimensions, on different axes
  std::variant<Replicate, FlatShard, Owner> local = {};
  AxisNames partial = {};
};

// The gradient of such a tensor before it is reduced: whole local slices, partial on the axes whose ranks have samples
// or positions of their own.
Placement gradient_placement(const Placement& placement, AxisNames axes_of_samples);

// A tensor with its placement: what each rank has of it. Pure functions.
//
// Threads: read by any number.
// Errors: the constructor throws Errc::usage naming the tensor where tensor and placement do not fit, and those of
//   MeshShape.
class PlacedTensor {
 public:
  // What some ranks have alike.
  struct Part {
    std::vector<int> slices;  // by Shard
    int flat = -1;            // of the FlatShard; -1: there is none
    std::vector<HeldRange> ranges;
  };

  // By axis of the mesh: some of its coordinates, ascending but for those of a Stage; empty: all of them.
  using Coordinates = std::vector<std::vector<int>>;

  PlacedTensor(TensorSpec spec, Placement placement);

  const TensorSpec& spec() const { return spec_; }
  const Placement& placement() const { return placement_; }

  // False at another stage, and at those that do not own it. A rank that is to have an empty part has it.
  bool exists_at(int rank) const;
  // What a rank has of the tensor, ascending; padding is no element of it.
  std::vector<HeldRange> held(int rank) const;
  // The part as the rank has it in memory, padding included: one dimension for a FlatShard, which may be empty.
  // REQUIRES: exists_at(rank)
  std::vector<std::int64_t> local_shape(int rank) const;
  std::int64_t local_elements(int rank) const;  // 0 where it does not exist
  std::int64_t local_bytes(int rank) const;

  // The ranks that have the same part, ascending, this one included. Empty where the tensor does not exist.
  std::vector<int> holders(int rank) const;
  // Whether this rank's part counts in a sum over all ranks, such as a norm: the lowest one of the holders.
  bool counts_once_at(int rank) const;

  // Of a gradient: the axes over which it is summed, outermost first; those of one rank are left out. "pipeline" is
  // among them where several stages have the tensor, for which it is the axis of those stages alone.
  AxisNames reduction_axes() const;
  // Of a gradient: the ranks whose summands add up to this rank's part: along those axes, and where a Shard has copies
  // the copies. Ascending. REQUIRES: exists_at(rank)
  std::vector<int> reduction_ranks(int rank) const;

  // All parts that have elements; each element is in one of them.
  std::vector<Part> parts() const;
  std::vector<int> holders(const Part& part) const;
  // The same ranks, in short: those that have one of these coordinates on each axis.
  Coordinates coordinates(const Part& part) const;

 private:
  struct Slice {  // of one dimension: entries that are one behind the other
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

// The slots of tensors in the given order, whose placements name their slices (and no FlatShard yet). Offsets are
// multiples of 64 bytes.
BucketLayout plan_bucket_layout(const std::vector<PlacedTensor>& tensors);

}  // namespace ddprun::sharding
