#pragma once

#include "worker/tensor/tensor.h"

namespace ddprun {

// The part of a tensor that a rank has: a dimension consists of so many equal pieces, one after the other, and each
// rank has its equal part of each piece. GPT's c_attn has three pieces, query, key and value.
struct Slicing {
  std::int64_t dim = 0;
  std::int64_t pieces = 1;
};

// Pure functions. REQUIRES: the dimension is a multiple of pieces * ranks.
// Returns a copy of a rank's part.
Tensor part_of(const Tensor& whole, const Slicing& slicing, int rank, int ranks);
// The inverse of part_of(): writes a rank's part, contiguous, into the whole, contiguous.
void put_part(const Tensor& part, const Slicing& slicing, int rank, int ranks, Tensor& whole);
// Returns the shape of a whole tensor whose part has this shape.
Shape whole_shape(const Shape& part, const Slicing& slicing, int ranks);

}  // namespace ddprun
