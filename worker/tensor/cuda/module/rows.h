#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/float16.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/scratch.h"
#include "worker/tensor/cuda/module/warp.h"

// The driver of reductions along rows of dense memory, (rows, n): a warp has a row, or a block where rows are long. A
// thread has the same elements however the memory is aligned, so that sums are taken in one order.
namespace ddprun::cuda {

// Up to this length a row is a warp's.
inline constexpr std::int64_t longest_row_of_warp = 1024;

// The rows of a group of threads and, within a row, the elements of a thread.
template <int threads>
struct RowGroup {
  static constexpr int groups = block_threads / threads;  // the number in a block

  static unsigned grid(const DeviceContext& device, std::int64_t rows) {
    return grid_of_blocks(device, divide_up(rows, groups));
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x) % threads; }

  template <class Visit>
  __device__ static void for_each_row(std::int64_t rows, const Visit& visit) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * groups;
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * groups + threadIdx.x / threads; row < rows;
         row += step)
      visit(row);
  }

  // Calls visit(first, count, full) for this thread's packs of `size` elements; the last of a row may not be full.
  template <int size, class Visit>
  __device__ static void for_each_pack(std::int64_t n, const Visit& visit) {
    for (std::int64_t first = std::int64_t{thread()} * size; first < n; first += std::int64_t{threads} * size) {
      if (first + size <= n)
        visit(first, size);
      else
        visit(first, static_cast<int>(n - first));
    }
  }
};

// Loads the elements from `first` on, of which there are `count`, at most `size`.
template <int size, class T>
__device__ Pack<T, size> load_some(const T* row, std::int64_t first, int count, bool aligned) {
  if (count == size) return load_pack<size>(row + first, aligned);
  Pack<T, size> result{};
  for (int k = 0; k < size; ++k)
    if (k < count) result.elements[k] = row[first + k];
  return result;
}

template <int size, class T>
__device__ void store_some(const Pack<T, size>& pack, T* row, std::int64_t first, int count, bool aligned) {
  if (count == size) return store_pack(pack, row + first, aligned);
  for (int k = 0; k < size; ++k)
    if (k < count) row[first + k] = pack.elements[k];
}

// Calls visit(k, x) for each of the row's elements that this thread has, as the type of computation.
template <int threads, class T, class Visit>
__device__ void for_each_element(const T* row, std::int64_t n, const Visit& visit) {
  constexpr int size = pack_size<T>;
  const bool aligned = is_aligned<size>(row);
  RowGroup<threads>::template for_each_pack<size>(n, [&](std::int64_t first, int count) {
    const Pack<T, size> x = load_some<size>(row, first, count, aligned);
    for (int k = 0; k < size; ++k)
      if (k < count) visit(first + k, static_cast<ComputeType<T>>(x.elements[k]));
  });
}

// Calls visit.template operator()<threads>() for the group that suits rows of this length.
template <class Visit>
void with_group_for(std::int64_t n, const Visit& visit) {
  if (n <= longest_row_of_warp)
    visit.template operator()<warp_size>();
  else
    visit.template operator()<block_threads>();
}

// --- sums

// A longer row is summed in segments of this length, whose sums are added in float64: the error does not grow with the
// length, and a single row fills the device.
inline constexpr std::int64_t longest_segment = 8192;

// Row i has the elements of a segment: number i % segments of row i / segments of x.
template <int threads, class T, class Out>
__global__ void __launch_bounds__(block_threads, 1)
    sum_rows_kernel(std::int64_t rows, std::int64_t segments, std::int64_t n, std::int64_t segment, const T* x,
                    Out* out) {
  using C = ComputeType<T>;
  RowGroup<threads>::for_each_row(rows, [&](std::int64_t row) {
    const std::int64_t start = row % segments * segment;
    C total = 0;
    for_each_element<threads>(x + row / segments * n + start, std::min(segment, n - start),
                              [&](std::int64_t, C value) { total += value; });
    total = reduce_group<threads>(total, Plus{});
    if (RowGroup<threads>::thread() == 0) out[row] = Out(static_cast<ComputeType<Out>>(total));
  });
}

template <class T, class Out>
void launch_row_sums(DeviceContext& device, std::int64_t rows, std::int64_t segments, std::int64_t n,
                     std::int64_t segment, const T* x, Out* out) {
  with_group_for(segment, [&]<int threads>() {
    launch(device, sum_rows_kernel<threads, T, Out>, RowGroup<threads>::grid(device, rows), block_threads, 0, rows,
           segments, n, segment, x, out);
  });
}

// out[i] = the sum of row i.
template <class T, class Out>
void sum_rows(DeviceContext& device, std::int64_t rows, std::int64_t n, const T* x, Out* out) {
  if (rows == 0) return;
  const std::int64_t segments = divide_up(n, longest_segment);
  if (segments <= 1) return launch_row_sums(device, rows, 1, n, n, x, out);
  const Scratch partial = scratch_for<double>(device, rows * segments);
  launch_row_sums(device, rows * segments, segments, n, longest_segment, x, partial.data<double>());
  launch_row_sums(device, rows, 1, segments, segments, static_cast<const double*>(partial.data<double>()), out);
}

}  // namespace ddprun::cuda
