#include <algorithm>

#include "common/float16.h"
#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/refuse.h"
#include "worker/tensor/cuda/module/views.h"

// Casts many tensors by one kernel: their addresses are its arguments. A block has pieces of one size, whatever the
// tensors' sizes.
namespace ddprun::cuda {
namespace {

constexpr std::int64_t piece_length = 4096;
constexpr int most_tensors = 128;  // those of a launch, whose arguments may take 4 KiB

template <class Out>
struct Casts {
  const float* from[most_tensors];
  Out* to[most_tensors];
  std::int32_t end[most_tensors];  // the end of this tensor's pieces after those of the tensors before it
  std::int64_t length[most_tensors];
  int count = 0;

  std::int32_t pieces() const { return count == 0 ? 0 : end[count - 1]; }
};
static_assert(sizeof(Casts<BFloat16>) <= 4000);

// Returns the first tensor whose pieces end after this one.
template <class Out>
__device__ int tensor_of(const Casts<Out>& casts, std::int32_t piece) {
  int low = 0, high = casts.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (casts.end[middle] <= piece)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class Out>
__global__ void __launch_bounds__(block_threads, 1) cast_all_kernel(const Casts<Out> casts) {
  constexpr int size = pack_size<float, Out>;
  const std::int32_t pieces = casts.end[casts.count - 1];
  for (auto piece = static_cast<std::int32_t>(blockIdx.x); piece < pieces;
       piece += static_cast<std::int32_t>(gridDim.x)) {
    const int tensor = tensor_of(casts, piece);
    const std::int64_t number = piece - (tensor == 0 ? 0 : casts.end[tensor - 1]);
    const std::int64_t first = number * piece_length;
    const std::int64_t count = std::min(std::int64_t{piece_length}, casts.length[tensor] - first);
    const float* const from = casts.from[tensor] + first;
    Out* const to = casts.to[tensor] + first;
    const bool aligned = is_aligned<size>(from) && is_aligned<size>(to);
    for (std::int64_t at = std::int64_t{threadIdx.x} * size; at < count; at += block_threads * size) {
      if (at + size <= count) {
        store_pack(map_packs<Out, size>([](float x) { return x; }, load_pack<size>(from + at, aligned)), to + at,
                   aligned);
      } else {
        for (std::int64_t i = at; i < count; ++i) to[i] = Out(from[i]);
      }
    }
  }
}

template <class Out>
void cast_each(DeviceContext& device, const View* from, const View* to, std::int64_t count) {
  Casts<Out> casts;
  const auto flush = [&] {
    if (casts.pieces() > 0)
      launch(device, cast_all_kernel<Out>, grid_of_blocks(device, casts.pieces()), block_threads, 0, casts);
    casts.count = 0;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t length = element_count(from[i]), pieces = divide_up(length, piece_length);
    if (length == 0) continue;
    if (casts.count == most_tensors || casts.pieces() + pieces > INT32_MAX) flush();
    const auto end = static_cast<std::int32_t>(casts.pieces() + pieces);
    casts.from[casts.count] = elements<float>(from[i]);
    casts.to[casts.count] = writable<Out>(to[i]);
    casts.length[casts.count] = length;
    casts.end[casts.count++] = end;
  }
  flush();
}

}  // namespace

void cast_all(DeviceContext& device, const View* from, const View* to, std::int64_t count) {
  if (count == 0) return;
  for (std::int64_t i = 0; i < count; ++i)
    if (from[i].dtype != DType::float32 || to[i].dtype != to[0].dtype) refuse_dtype(device, "cast_all", from[i].dtype);
  if (to[0].dtype == DType::bfloat16) return cast_each<BFloat16>(device, from, to, count);
  if (to[0].dtype == DType::float16) return cast_each<Float16>(device, from, to, count);
  refuse_dtype(device, "cast_all", to[0].dtype);
}

}  // namespace ddprun::cuda
