#include "ddprun/worker/parallel/context/zigzag.h"

#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {

Pieces pieces_of(int rank, int ranks) {
  return {rank, 2 * ranks - 1 - rank};
}

nn::SamplePart own_part(int rank, int ranks) {
  return [pieces = pieces_of(rank, ranks)](std::int64_t own) {
    const std::int64_t piece = own / 2;
    return std::vector<nn::SampleRange>{{pieces.first * piece, piece}, {pieces.second * piece, piece}};
  };
}

// An earlier rank's first piece is before both of this rank's, and its second one after them; a later rank's pieces are
// both between this rank's.
SeenPositions seen_positions(int rank, int owner, std::int64_t piece) {
  if (owner < rank) return {.queries = {0, 2 * piece}, .keys = {0, piece}};
  return {.queries = {piece, piece}, .keys = {0, 2 * piece}};
}

Tensor own_positions(const Tensor& all, std::int64_t dim, int rank, int ranks) {
  const std::int64_t pieces_of_all = 2 * std::int64_t{ranks};
  if (all.size(dim) % pieces_of_all != 0)
    throw make_error(Errc::usage, "{} positions are no multiple of {}, twice the number of context-parallel ranks",
                     all.size(dim), pieces_of_all);
  const std::int64_t piece = all.size(dim) / pieces_of_all;
  const Pieces pieces = pieces_of(rank, ranks);
  Shape shape = all.shape();
  shape[static_cast<std::size_t>(dim)] = 2 * piece;
  Tensor own = Tensor::empty(shape, all.dtype(), all.device());
  Tensor first = own.slice(dim, 0, piece), second = own.slice(dim, piece, piece);
  kernels::copy(all.slice(dim, pieces.first * piece, piece), first);
  kernels::copy(all.slice(dim, pieces.second * piece, piece), second);
  return own;
}

}  // namespace ddprun
