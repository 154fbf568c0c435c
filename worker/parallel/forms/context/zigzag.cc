#include "worker/parallel/forms/context/zigzag.h"

#include <vector>

#include "common/error.h"
#include "worker/tensor/kernels.h"

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

// Rows of queries follow one another as positions do.
nn::SamplePart own_weights(std::int64_t heads, int rank, int ranks) {
  return [of_head = own_part(rank, ranks), heads, ranks](std::int64_t own) {
    const std::int64_t own_of_head = own / heads;
    std::vector<nn::SampleRange> all;
    for (std::int64_t head = 0; head < heads; ++head)
      for (const nn::SampleRange& range : of_head(own_of_head))
        all.push_back({head * ranks * own_of_head + range.start, range.length});
    return all;
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

void put_positions(const Tensor& own, std::int64_t dim, int rank, int ranks, const Tensor& all) {
  std::int64_t begin = 0;
  for (const nn::SampleRange& range : own_part(rank, ranks)(own.size(dim))) {
    Tensor place = all.slice(dim, range.start, range.length);
    kernels::copy(own.slice(dim, begin, range.length), place);
    begin += range.length;
  }
}

std::vector<std::int64_t> numbers_of_positions(std::int64_t positions, int rank, int ranks) {
  std::vector<std::int64_t> numbers;
  for (const nn::SampleRange& range : own_part(rank, ranks)(positions / ranks))
    for (std::int64_t i = 0; i < range.length; ++i) numbers.push_back(range.start + i);
  return numbers;
}

}  // namespace ddprun
