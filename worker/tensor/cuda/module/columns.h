#pragma once

#include <cstdint>

#include "common/float16.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/scratch.h"
#include "worker/tensor/geometry.h"

// The driver of sums along columns of dense memory, (outer, n, inner): warps read neighbouring columns.
namespace ddprun::cuda {

inline constexpr int lanes_of_tile = 32;
inline constexpr int rows_of_tile = block_threads / lanes_of_tile;

// A larger number of rows is summed in segments of this length, whose sums are added in float64.
inline constexpr std::int64_t longest_column_segment = 256;

struct ColumnSums {
  kernels::Axis axis;
  std::int64_t segment;   // the rows that a block adds
  std::int64_t segments;  // the segments of a column
  bool accumulate;
};

// out: (outer, segments, inner). A thread has `size` columns and every rows_of_tile-th row, so the order of a column's
// sum is the same for every size.
template <int size, class T, class Out>
__global__ void __launch_bounds__(block_threads, 1) sum_columns_kernel(ColumnSums sums, const T* x, Out* out) {
  using C = ComputeType<T>;
  __shared__ C partial[rows_of_tile][lanes_of_tile * size];
  const int lane = static_cast<int>(threadIdx.x) % lanes_of_tile, row = static_cast<int>(threadIdx.x) / lanes_of_tile;
  const std::int64_t n = sums.axis.n, inner = sums.axis.inner;
  const std::int64_t tiles = divide_up(inner, lanes_of_tile * size);
  const std::int64_t pieces = sums.axis.outer * sums.segments * tiles;
  for (std::int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const std::int64_t column = (piece % tiles * lanes_of_tile + lane) * size;
    const std::int64_t part = piece / tiles;  // its number among all segments
    const std::int64_t first = part % sums.segments * sums.segment, last = std::min(first + sums.segment, n);
    C total[size] = {};
    if (column < inner) {
      const T* from = x + (part / sums.segments * n + first + row) * inner + column;
      for (std::int64_t i = first + row; i < last; i += rows_of_tile, from += rows_of_tile * inner) {
        const Pack<T, size> pack = *reinterpret_cast<const Pack<T, size>*>(from);
        for (int k = 0; k < size; ++k) total[k] += static_cast<C>(pack.elements[k]);
      }
    }
    for (int k = 0; k < size; ++k) partial[row][k * lanes_of_tile + lane] = total[k];
    __syncthreads();
    // The first warps add what the rows of the tile have; column k of a lane is k * lanes_of_tile away.
    for (int at = static_cast<int>(threadIdx.x); at < lanes_of_tile * size; at += block_threads) {
      const std::int64_t own = (piece % tiles * lanes_of_tile + at % lanes_of_tile) * size + at / lanes_of_tile;
      if (own >= inner) continue;
      C sum = partial[0][at];
      for (int r = 1; r < rows_of_tile; ++r) sum += partial[r][at];
      Out& to = out[part * inner + own];
      using O = ComputeType<Out>;
      to = Out(sums.accumulate ? static_cast<O>(to) + static_cast<O>(sum) : static_cast<O>(sum));
    }
    __syncthreads();  // before the next piece overwrites partial
  }
}

template <class T, class Out>
void launch_column_sums(DeviceContext& device, const ColumnSums& sums, const T* x, Out* out) {
  constexpr int wide = pack_size<T>;
  const auto launch_with = [&]<int size>() {
    const std::int64_t tiles = divide_up(sums.axis.inner, lanes_of_tile * size);
    launch(device, sum_columns_kernel<size, T, Out>, grid_of_blocks(device, sums.axis.outer * sums.segments * tiles),
           block_threads, 0, sums, x, out);
  };
  if (sums.axis.inner % wide == 0 && is_aligned<wide>(x))
    launch_with.template operator()<wide>();
  else
    launch_with.template operator()<1>();
}

// out (outer, inner) = the sum over n, added to what is there if told so.
template <class T, class Out>
void sum_columns(DeviceContext& device, const kernels::Axis& axis, const T* x, Out* out, bool accumulate) {
  if (axis.outer == 0 || axis.inner == 0) return;
  const std::int64_t segments = divide_up(axis.n, longest_column_segment);
  if (segments <= 1) return launch_column_sums(device, {axis, axis.n, 1, accumulate}, x, out);
  const Scratch partial = scratch_for<double>(device, axis.outer * segments * axis.inner);
  launch_column_sums(device, {axis, longest_column_segment, segments, false}, x, partial.data<double>());
  launch_column_sums(device, {{axis.outer, segments, axis.inner}, segments, 1, accumulate},
                     static_cast<const double*>(partial.data<double>()), out);
}

}  // namespace ddprun::cuda
