#include "worker/parallel/slicing.h"

#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

// Returns a view (before, pieces, elements of a rank in a piece, after).
Tensor view_of_part(const Tensor& whole, const Slicing& slicing, int rank, int ranks) {
  const auto at = static_cast<std::size_t>(slicing.dim);
  std::int64_t before = 1, after = 1;
  for (std::size_t i = 0; i < at; ++i) before *= whole.shape()[i];
  for (std::size_t i = at + 1; i < whole.shape().size(); ++i) after *= whole.shape()[i];
  const std::int64_t length = whole.shape()[at] / (slicing.pieces * ranks);
  return whole.reshape({before, slicing.pieces, ranks, length, after}).select(2, rank);
}

}  // namespace

Tensor part_of(const Tensor& whole, const Slicing& slicing, int rank, int ranks) {
  Shape shape = whole.shape();
  shape[static_cast<std::size_t>(slicing.dim)] /= ranks;
  return view_of_part(whole, slicing, rank, ranks).clone().reshape(shape);
}

void put_part(const Tensor& part, const Slicing& slicing, int rank, int ranks, Tensor& whole) {
  Tensor place = view_of_part(whole, slicing, rank, ranks);
  kernels::copy(part.reshape(place.shape()), place);
}

Shape whole_shape(const Shape& part, const Slicing& slicing, int ranks) {
  Shape shape = part;
  shape[static_cast<std::size_t>(slicing.dim)] *= ranks;
  return shape;
}

}  // namespace ddprun
