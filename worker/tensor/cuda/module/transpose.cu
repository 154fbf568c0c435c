#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/transpose.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

constexpr int tile = 32;
constexpr int lines = block_threads / tile;  // those of a tile that are moved at once
constexpr std::int64_t least_side = tile / 2;

template <class Word>
__global__ void __launch_bounds__(block_threads, 1) transpose_kernel(Transposition shape, const Word* from, Word* to) {
  __shared__ Word words[tile][tile + 1];  // one more, so that columns are in different banks
  const int lane = static_cast<int>(threadIdx.x) % tile, line = static_cast<int>(threadIdx.x) / tile;
  const std::int64_t across = divide_up(shape.columns, tile), down = divide_up(shape.rows, tile);
  for (std::int64_t piece = blockIdx.x; piece < shape.batch_count * across * down; piece += gridDim.x) {
    const std::int64_t row = piece / across % down * tile, column = piece % across * tile;
    std::int64_t start[2];
    shape.batches.locate(piece / (across * down), start);
    for (int i = line; i < tile; i += lines)
      if (row + lane < shape.rows && column + i < shape.columns)
        words[i][lane] = from[start[1] + row + lane + (column + i) * shape.from_column];
    __syncthreads();
    for (int i = line; i < tile; i += lines)
      if (row + i < shape.rows && column + lane < shape.columns)
        to[start[0] + (row + i) * shape.to_row + column + lane] = words[lane][i];
    __syncthreads();  // before the next tile overwrites this one
  }
}

}  // namespace

std::optional<Transposition> transposition_of(const View& from, const View& to) {
  const StridedIndex<2> index({&to, &from});
  const int columns = index.rank - 1;
  if (columns < 1 || index.strides[0][columns] != 1 || index.strides[1][columns] == 1) return std::nullopt;
  int rows = 0;
  while (rows < columns && index.strides[1][rows] != 1) ++rows;
  if (rows == columns || index.sizes[rows].divisor() < least_side || index.sizes[columns].divisor() < least_side)
    return std::nullopt;
  View others[2];
  std::int64_t batch_count = 1;
  for (int dim = 0; dim < columns; ++dim) {
    if (dim == rows) continue;
    batch_count *= index.sizes[dim].divisor();
    for (int t = 0; t < 2; ++t) {
      const auto at = static_cast<std::size_t>(others[t].rank++);
      others[t].shape[at] = index.sizes[dim].divisor();
      others[t].strides[at] = index.strides[t][dim];
    }
  }
  return Transposition{index.sizes[rows].divisor(),
                       index.sizes[columns].divisor(),
                       index.strides[0][rows],
                       index.strides[1][columns],
                       batch_count,
                       StridedIndex<2>({&others[0], &others[1]})};
}

void transpose(DeviceContext& device, const Transposition& shape, const View& from, const View& to) {
  const std::int64_t tiles = shape.batch_count * divide_up(shape.rows, tile) * divide_up(shape.columns, tile);
  visit_word(to.dtype, [&]<class Word>() {
    launch(device, transpose_kernel<Word>, grid_of_blocks(device, tiles), block_threads, 0, shape, elements<Word>(from),
           writable<Word>(to));
  });
}

}  // namespace ddprun::cuda
