#pragma once

#include <cstdint>

#include "worker/tensor/cuda/module/tile_product.h"

// The common parts of the attention kernels: sizes, which keys a query sees, and how tiles get into shared memory. Each
// warp of a block has a strip of rows of its own, and all warps see one tile of the other side after another: queries
// of their own and tiles of keys, or the other way round. Tiles have Width columns, those beyond the actual width are
// zero.
namespace ddprun::cuda {

struct AttentionSizes {
  std::int64_t batch, heads, queries, keys;
  int width, value_width;
  bool causal;

  // Returns the number of keys that query i sees.
  __host__ __device__ std::int64_t visible(std::int64_t i) const {
    const std::int64_t end = causal ? i + 1 + keys - queries : keys;
    return i >= queries || end < 0 ? 0 : end < keys ? end : keys;
  }
  // Returns the first query that sees a key.
  __host__ __device__ std::int64_t first_query_of(std::int64_t key) const {
    const std::int64_t first = causal ? key - (keys - queries) : 0;
    return first < 0 ? 0 : first;
  }
};

// A tensor (batch, heads, rows, width), contiguous in the last dimension.
template <class Stored>
struct HeadRows {
  Stored* data;
  std::int64_t batch_stride, head_stride, row_stride;
  bool aligned;  // each row begins at a multiple of 16 bytes

  __device__ Stored* of(std::int64_t batch, std::int64_t head) const {
    return data + batch * batch_stride + head * head_stride;
  }
};

// The tile and the head that a block computes. The tile changes slowest.
struct BlockPosition {
  std::int64_t tile, batch, head, number;  // number: the head's among all

  __device__ explicit BlockPosition(const AttentionSizes& sizes) {
    const std::int64_t all = sizes.batch * sizes.heads;
    tile = blockIdx.x / all;
    number = blockIdx.x % all;
    batch = number / sizes.heads;
    head = number % sizes.heads;
  }
};

// Columns of a tile's row in memory: 16 bytes more than there are, so that 8 rows begin in different banks.
template <class Stored, int Width>
inline constexpr int tile_stride = Width + pack_size<Stored>;

// Copies rows of up to Width columns into a tile, by `threads` of which this is one. Rows from `valid` on are zero.
template <int Rows, int Width, class Stored>
__device__ __forceinline__ void load_rows(const Stored* from, std::int64_t stride, std::int64_t valid, int width,
                                          bool aligned, int thread, int threads, Stored* tile) {
  constexpr int size = pack_size<Stored>, row_chunks = Width / size;
  for (int i = thread; i < Rows * row_chunks; i += threads) {
    const int row = i / row_chunks, column = i % row_chunks * size;
    const auto chunk = load_chunk(from + row * stride + column, row < valid ? width - column : 0, aligned);
    store_chunk(chunk, size, true, tile + row * tile_stride<Stored, Width> + column);
  }
}

// Loads a block's rows of one head from `first` on, of `rows` that there are.
template <int Rows, int Width, class Stored>
__device__ __forceinline__ void load_tile(const HeadRows<const Stored>& operand, const BlockPosition& at,
                                          std::int64_t first, std::int64_t rows, int width, Stored* tile) {
  load_rows<Rows, Width>(operand.of(at.batch, at.head) + first * operand.row_stride, operand.row_stride, rows - first,
                         width, operand.aligned, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), tile);
}

// Loads a warp's strip.
template <int Width, class Stored>
__device__ __forceinline__ void load_strip(const HeadRows<const Stored>& operand, const BlockPosition& at,
                                           std::int64_t first, std::int64_t rows, int width, Stored* strip) {
  load_rows<strip_rows<Stored>, Width>(operand.of(at.batch, at.head) + first * operand.row_stride, operand.row_stride,
                                       rows - first, width, operand.aligned, lane_of_warp(), warp_size, strip);
}
// Stores the strip's columns [first_column, first_column + Columns).
template <int Width, int Columns, class Stored>
__device__ __forceinline__ void store_strip(const Stored* strip, int first_column, const HeadRows<Stored>& result,
                                            const BlockPosition& at, std::int64_t first, std::int64_t rows, int width) {
  constexpr int size = pack_size<Stored>, row_chunks = Columns / size;
  Stored* to = result.of(at.batch, at.head) + first * result.row_stride;
  for (int i = lane_of_warp(); i < strip_rows<Stored> * row_chunks; i += warp_size) {
    const int row = i / row_chunks, column = first_column + i % row_chunks * size;
    if (first + row >= rows) continue;
    const auto chunk = load_chunk(strip + row * tile_stride<Stored, Width> + column, size, true);
    store_chunk(chunk, width - column, result.aligned, to + row * result.row_stride + column);
  }
}

// Scores of a strip as they are computed, or what was made of them as an operand of a product, in their place.
template <class Stored, int Columns>
struct ScoreStrip {
  using T = ComputeType<Stored>;
  static constexpr int stride = Columns + 4;  // rows begin in different banks
  static constexpr int size = strip_rows<Stored> * stride;
  static constexpr int operand_stride = stride * static_cast<int>(sizeof(T) / sizeof(Stored));

  explicit __device__ ScoreStrip(T* memory) : scores(memory), operand(reinterpret_cast<Stored*>(memory)) {}
  T* scores;
  Stored* operand;
};

// Reduces over the four lanes that have a row: the sum or maximum of their values, in all four.
template <class T>
__device__ __forceinline__ T sum_of_four(T value) {
  value += __shfl_xor_sync(whole_warp, value, 1);
  value += __shfl_xor_sync(whole_warp, value, 2);
  return value;
}
template <class T>
__device__ __forceinline__ T highest_of_four(T value) {
  const T a = __shfl_xor_sync(whole_warp, value, 1);
  value = a > value ? a : value;
  const T b = __shfl_xor_sync(whole_warp, value, 2);
  return b > value ? b : value;
}

template <class T>
__host__ __device__ constexpr T minus_infinity() {
  return -static_cast<T>(__builtin_inff());
}

}  // namespace ddprun::cuda
