#include <algorithm>

#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/scratch.h"
#include "worker/tensor/cuda/module/sorted_index.h"
#include "worker/tensor/cuda/module/warp.h"

// A radix sort by digits of 8 bits from the lowest on, each pass stable: tiles count their digits, the counts become
// places, and tiles move their pairs there.
namespace ddprun::cuda {
namespace {

constexpr int digit_bits = 8, digits = 1 << digit_bits;
constexpr int warps = block_threads / warp_size;
constexpr int keys_of_warp = 256;
constexpr std::int64_t keys_of_tile = std::int64_t{warps} * keys_of_warp;
static_assert(digits == block_threads, "a thread has a digit");

// The digit of a pass; of fewer bits where the keys end.
struct Digit {
  int shift, bits;
  DDPRUN_HOST_DEVICE unsigned of(std::uint32_t key) const { return (key >> shift) & ((1U << bits) - 1); }
};

// Finds the lanes of the warp that have the same digit; a lane that has none takes part, and is in no set of another.
__device__ unsigned lanes_with(unsigned digit, int bits, bool valid) {
  unsigned same = __ballot_sync(whole_warp, valid);
  for (int bit = 0; bit < bits; ++bit) {
    const unsigned set = __ballot_sync(whole_warp, (digit >> bit & 1) != 0);
    same &= (digit >> bit & 1) != 0 ? set : ~set;
  }
  return same;
}

// Calls visit(at, digit, same) for the warp's keys in order, 32 at a time; same: the lanes with this digit. All lanes
// get there together; at is beyond the end for lanes without a key.
template <class Visit>
__device__ void for_each_key(const Digit& digit, std::int64_t count, const std::uint32_t* keys, const Visit& visit) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t start = blockIdx.x * keys_of_tile + std::int64_t{warp} * keys_of_warp;
  for (std::int64_t first = start; first < std::min(start + keys_of_warp, count); first += warp_size) {
    const std::int64_t at = first + lane;
    const bool valid = at < count;
    const unsigned own = valid ? digit.of(keys[at]) : 0;
    visit(at, own, lanes_with(own, digit.bits, valid));
  }
}

// Adds a warp's counts of digits to of_warp, all of whose entries are 0 before.
__device__ void count_of_warp(const Digit& digit, std::int64_t count, const std::uint32_t* keys,
                              std::uint32_t* of_warp) {
  const unsigned lane = threadIdx.x % warp_size;
  for_each_key(digit, count, keys, [&](std::int64_t at, unsigned own, unsigned same) {
    if (at < count && lane == static_cast<unsigned>(__ffs(static_cast<int>(same)) - 1))
      of_warp[own] += static_cast<std::uint32_t>(__popc(same));
    __syncwarp();
  });
}

__global__ void __launch_bounds__(block_threads, 1)
    start_kernel(Destination destination, std::int64_t count, const std::int64_t* index, std::uint32_t* keys,
                 std::uint32_t* sources) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    keys[i] = static_cast<std::uint32_t>(destination.of(i, index[i]));
    sources[i] = static_cast<std::uint32_t>(i);
  }
}

// counts: (digits, tiles)
__global__ void __launch_bounds__(block_threads, 1)
    count_kernel(Digit digit, std::int64_t count, const std::uint32_t* keys, std::uint32_t* counts) {
  __shared__ std::uint32_t of_warp[warps][digits];
  for (int warp = 0; warp < warps; ++warp) of_warp[warp][threadIdx.x] = 0;
  __syncthreads();
  count_of_warp(digit, count, keys, of_warp[threadIdx.x / warp_size]);
  __syncthreads();
  std::uint32_t total = 0;
  for (int warp = 0; warp < warps; ++warp) total += of_warp[warp][threadIdx.x];
  counts[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = total;
}

// Returns, for a value of each thread, the sum of those of the threads before it.
__device__ std::uint32_t sum_before(std::uint32_t value) {
  __shared__ std::uint32_t sums[2][block_threads];
  int from = 0;
  sums[from][threadIdx.x] = value;
  __syncthreads();
  for (unsigned distance = 1; distance < block_threads; distance *= 2, from = 1 - from) {
    const std::uint32_t before = threadIdx.x >= distance ? sums[from][threadIdx.x - distance] : 0;
    sums[1 - from][threadIdx.x] = sums[from][threadIdx.x] + before;
    __syncthreads();
  }
  return sums[from][threadIdx.x] - value;
}

// Replaces each count by the sum of those before it. One block; a thread has a run of counts.
__global__ void __launch_bounds__(block_threads, 1) places_kernel(std::int64_t count, std::uint32_t* counts) {
  const std::int64_t run = divide_up(count, block_threads);
  const std::int64_t start = std::min(threadIdx.x * run, count), end = std::min(start + run, count);
  std::uint32_t total = 0;
  for (std::int64_t i = start; i < end; ++i) total += counts[i];
  std::uint32_t place = sum_before(total);
  for (std::int64_t i = start; i < end; ++i) {
    const std::uint32_t own = counts[i];
    counts[i] = place;
    place += own;
  }
}

__global__ void __launch_bounds__(block_threads, 1)
    move_kernel(Digit digit, std::int64_t count, const std::uint32_t* keys, const std::uint32_t* sources,
                const std::uint32_t* places, std::uint32_t* sorted_keys, std::uint32_t* sorted_sources) {
  __shared__ std::uint32_t next[warps][digits];  // first the counts of each warp, then the place of its next key
  for (int warp = 0; warp < warps; ++warp) next[warp][threadIdx.x] = 0;
  __syncthreads();
  std::uint32_t* own_next = next[threadIdx.x / warp_size];
  count_of_warp(digit, count, keys, own_next);
  __syncthreads();
  std::uint32_t place = places[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int warp = 0; warp < warps; ++warp) {
    const std::uint32_t of_warp = next[warp][threadIdx.x];
    next[warp][threadIdx.x] = place;
    place += of_warp;
  }
  __syncthreads();
  const unsigned lane = threadIdx.x % warp_size;
  for_each_key(digit, count, keys, [&](std::int64_t at, unsigned own, unsigned same) {
    const auto before = static_cast<std::uint32_t>(__popc(same & ((1U << lane) - 1)));
    if (at < count) {
      const std::uint32_t to = own_next[own] + before;
      sorted_keys[to] = keys[at];
      sorted_sources[to] = sources[at];
    }
    __syncwarp();  // all lanes have read the place before the first one advances it
    if (at < count && before == 0) own_next[own] += static_cast<std::uint32_t>(__popc(same));
    __syncwarp();
  });
}

int bits_of(std::int64_t count) {
  int bits = 1;
  while ((std::int64_t{1} << bits) < count) ++bits;
  return bits;
}

}  // namespace

bool SortedIndex::is_sortable(std::int64_t count, std::int64_t destinations) {
  return count < std::int64_t{1} << 31 && destinations <= std::int64_t{1} << 32;
}

SortedIndex::SortedIndex(DeviceContext& device, std::int64_t count, std::int64_t destinations,
                         const std::int64_t* index, const Destination& destination)
    : keys_{scratch_for<std::uint32_t>(device, count), scratch_for<std::uint32_t>(device, count)},
      sources_{scratch_for<std::uint32_t>(device, count), scratch_for<std::uint32_t>(device, count)} {
  const auto tiles = static_cast<unsigned>(divide_up(count, keys_of_tile));
  const Scratch counts = scratch_for<std::uint32_t>(device, std::int64_t{digits} * tiles);
  auto* const places = counts.data<std::uint32_t>();
  launch(device, start_kernel, grid_of_threads(device, count), block_threads, 0, destination, count, index,
         keys_[0].data<std::uint32_t>(), sources_[0].data<std::uint32_t>());
  const int bits = bits_of(destinations);
  for (int shift = 0; shift < bits; shift += digit_bits, current_ = 1 - current_) {
    const Digit digit{shift, std::min(digit_bits, bits - shift)};
    const auto* const keys = static_cast<const std::uint32_t*>(keys_[current_].data<std::uint32_t>());
    launch(device, count_kernel, tiles, block_threads, 0, digit, count, keys, places);
    launch(device, places_kernel, 1, block_threads, 0, std::int64_t{digits} * tiles, places);
    launch(device, move_kernel, tiles, block_threads, 0, digit, count, keys,
           static_cast<const std::uint32_t*>(sources_[current_].data<std::uint32_t>()),
           static_cast<const std::uint32_t*>(places), keys_[1 - current_].data<std::uint32_t>(),
           sources_[1 - current_].data<std::uint32_t>());
  }
}

}  // namespace ddprun::cuda
