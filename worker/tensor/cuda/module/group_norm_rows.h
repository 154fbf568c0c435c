#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "common/float16.h"
#include "common/rounding.h"
#include "worker/tensor/cuda/module/chunk.h"
#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/launch.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/warp.h"
#include "worker/tensor/geometry.h"

// Rows of n channels of `inner` values. A warp has a row, or a block where rows are long. A thread always has the same
// chunks of a row: where there is room it keeps them in shared memory, and needs no barrier to read them again.
namespace ddprun::cuda {

struct NormRows {
  std::int64_t rows, channels, parameters;  // parameters: the elements of weight and bias, for one sample
  Divider inner;
  bool aligned;  // each row begins at a multiple of 16 bytes, and so do its parameters

  DDPRUN_HOST_DEVICE std::int64_t length() const { return channels * inner.divisor(); }
  // Rows of one sample take successive channels.
  DDPRUN_HOST_DEVICE std::int64_t first_channel(std::int64_t row) const {
    return parameters == channels ? 0 : row * channels % parameters;
  }
};

// parameter: weight or bias, of which either may be left out. memory: all that is read or written by chunks.
template <class Stored>
NormRows norm_rows(const kernels::Axis& groups, const View& parameter, std::initializer_list<const Stored*> memory) {
  constexpr int size = pack_size<Stored>;
  const std::int64_t parameters = parameter.data != nullptr ? element_count(parameter) : groups.n;
  const bool aligned =
      groups.n * groups.inner % size == 0 &&
      std::all_of(memory.begin(), memory.end(), [](const Stored* data) { return is_aligned<size>(data); });
  return {groups.outer, groups.n, parameters, Divider(groups.inner), aligned};
}

// Up to this length a row is a warp's.
inline constexpr std::int64_t longest_norm_row_of_warp = 1024;

// The values of a chunk, in the type of computation.
template <class Stored>
struct ChunkValues {
  ComputeType<Stored> values[pack_size<Stored>];
};

template <class Stored>
__device__ __forceinline__ ChunkValues<Stored> widened(const Chunk<Stored>& chunk) {
  ChunkValues<Stored> result;
  DDPRUN_UNROLL
  for (int k = 0; k < pack_size<Stored>; ++k) result.values[k] = static_cast<ComputeType<Stored>>(chunk.elements[k]);
  return result;
}
template <class Stored>
__device__ __forceinline__ Chunk<Stored> narrowed(const ChunkValues<Stored>& values) {
  Chunk<Stored> result;
  DDPRUN_UNROLL
  for (int k = 0; k < pack_size<Stored>; ++k) result.elements[k] = static_cast<Stored>(values.values[k]);
  return result;
}

// Stores as many values as a chunk of rows has, where the result has another type.
template <class Out, class Stored>
__device__ __forceinline__ void store_values(const ChunkValues<Stored>& chunk, std::int64_t count, bool aligned,
                                             Out* to) {
  constexpr int size = pack_size<Stored>;
  Pack<Out, size> pack;
  DDPRUN_UNROLL
  for (int k = 0; k < size; ++k) pack.elements[k] = static_cast<Out>(chunk.values[k]);
  if (aligned && count >= size) return store_pack(pack, to, true);
  DDPRUN_UNROLL
  for (int k = 0; k < size; ++k)
    if (k < count) to[k] = pack.elements[k];
}

// A weight or bias for the values [first, first + count) of a row, or `missing` where there is none.
template <class Stored>
__device__ __forceinline__ ChunkValues<Stored> load_parameters(const NormRows& shape, const Stored* parameter,
                                                               std::int64_t first_channel, std::int64_t first,
                                                               std::int64_t count, ComputeType<Stored> missing) {
  if (parameter != nullptr && shape.inner.divisor() == 1)
    return widened<Stored>(load_chunk(parameter + first_channel + first, count, shape.aligned));
  ChunkValues<Stored> result;
  DDPRUN_UNROLL
  for (int k = 0; k < pack_size<Stored>; ++k) {
    result.values[k] = missing;
    if (parameter != nullptr && k < count)
      result.values[k] = static_cast<ComputeType<Stored>>(parameter[first_channel + shape.inner.quotient(first + k)]);
  }
  return result;
}

// A row in memory, of which the chunks that were fetched are kept in shared memory, or nowhere if cache is null.
template <class Stored>
class CachedRow {
 public:
  static constexpr std::int64_t chunks(std::int64_t length) { return divide_up(length, pack_size<Stored>); }

  __device__ CachedRow(const Stored* row, bool aligned, Chunk<Stored>* cache)
      : row_(row), aligned_(aligned), cache_(cache) {}
  __device__ __forceinline__ ChunkValues<Stored> fetch(std::int64_t first, std::int64_t count) const {
    const Chunk<Stored> chunk = load_chunk(row_ + first, count, aligned_);
    if (cache_ != nullptr) cache_[first / pack_size<Stored>] = chunk;
    return widened<Stored>(chunk);
  }
  // Reads a chunk that this thread has fetched.
  __device__ __forceinline__ ChunkValues<Stored> again(std::int64_t first, std::int64_t count) const {
    return widened<Stored>(cache_ != nullptr ? cache_[first / pack_size<Stored>]
                                             : load_chunk(row_ + first, count, aligned_));
  }

 private:
  const Stored* row_;
  bool aligned_;
  Chunk<Stored>* cache_;
};

// Calls visit(row) for each row of this group of threads.
template <int threads, class Visit>
__device__ __forceinline__ void for_each_norm_row(std::int64_t rows, const Visit& visit) {
  constexpr int groups = block_threads / threads;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * groups;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * groups + threadIdx.x / threads; row < rows;
       row += step)
    visit(row);
}

// Calls visit(first, count) for each chunk of a row that this thread has; count may be more than a chunk.
template <int threads, class Stored, class Visit>
__device__ __forceinline__ void for_each_chunk(std::int64_t length, const Visit& visit) {
  constexpr int size = pack_size<Stored>;
  for (std::int64_t first = static_cast<std::int64_t>(threadIdx.x) % threads * size; first < length;
       first += threads * size)
    visit(first, length - first);
}

// Calls visit.template operator()<threads>(bytes of shared memory for so many rows of each group, or 0, blocks).
template <class Stored, class Visit>
void visit_norm_groups(const DeviceContext& device, const NormRows& shape, int cached_rows, const Visit& visit) {
  const auto visit_with = [&]<int threads>() {
    constexpr int groups = block_threads / threads;
    const std::int64_t bytes = groups * cached_rows * CachedRow<Stored>::chunks(shape.length()) * 16;
    const bool fits = bytes <= static_cast<std::int64_t>(default_shared_memory - 1024);  // the rest is for sums
    visit.template operator()<threads>(fits ? static_cast<std::size_t>(bytes) : 0,
                                       grid_of_blocks(device, divide_up(shape.rows, groups)));
  };
  if (shape.length() <= longest_norm_row_of_warp)
    visit_with.template operator()<warp_size>();
  else
    visit_with.template operator()<block_threads>();
}

// Returns the shared memory for one of a group's rows.
template <int threads, class Stored>
__device__ Chunk<Stored>* cache_of(bool fits, std::int64_t length, int cached_rows, int number) {
  if (!fits) return nullptr;
  const std::int64_t chunks = divide_up(length, pack_size<Stored>);
  return dynamic_shared<Chunk<Stored>>() + (threadIdx.x / threads * cached_rows + number) * chunks;
}

}  // namespace ddprun::cuda
