#pragma once

#include <cstdint>
#include <utility>

#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/strided_index.h"
#include "worker/tensor/cuda/module/views.h"

// The driver of elementwise computations: out[i] = f(in[i]...). F is passed to the kernel by value. An operand may be
// the result itself: a thread reads what it writes, and no other thread does.
namespace ddprun::cuda {

template <class F, class Out, class... In>
__global__ void __launch_bounds__(block_threads, 1)
    map_dense_kernel(F f, std::int64_t packs, std::int64_t count, Out* out, const In*... in) {
  constexpr int size = pack_size<Out, In...>;
  for (std::int64_t i = thread_of_grid(); i < packs; i += threads_of_grid())
    store_pack(map_packs<Out, size>(f, load_pack<size>(in + i * size, true)...), out + i * size, true);
  for (std::int64_t i = packs * size + thread_of_grid(); i < count; i += threads_of_grid()) out[i] = f(in[i]...);
}

template <class F, class Out, class... In>
void map_dense(DeviceContext& device, const F& f, std::int64_t count, Out* out, const In*... in) {
  if (count == 0) return;
  constexpr int size = pack_size<Out, In...>;
  const bool aligned = is_aligned<size>(out) && (is_aligned<size>(in) && ...);
  const std::int64_t packs = aligned ? count / size : 0;
  launch(device, map_dense_kernel<F, Out, In...>, grid_of_threads(device, aligned ? packs : count), block_threads, 0, f,
         packs, count, out, in...);
}

template <class F, class Out, class... In, std::size_t... operand>
__device__ void map_element(const F& f, const std::int64_t (&at)[1 + sizeof...(In)], std::index_sequence<operand...>,
                            Out* out, const In*... in) {
  out[at[0]] = f(in[at[operand + 1]]...);
}

template <class F, class Out, class... In>
__global__ void __launch_bounds__(block_threads, 1)
    map_strided_kernel(F f, StridedIndex<1 + sizeof...(In)> index, std::int64_t count, Out* out, const In*... in) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    std::int64_t at[1 + sizeof...(In)];
    index.locate(i, at);
    map_element(f, at, std::index_sequence_for<In...>(), out, in...);
  }
}

// The operands have out's shape.
template <class Out, class... In, class F, class... Views>
void map(DeviceContext& device, const F& f, const View& out, const Views&... in) {
  static_assert(sizeof...(In) == sizeof...(Views));
  const std::int64_t count = element_count(out);
  if (count == 0) return;
  const StridedIndex<1 + sizeof...(In)> index({&out, &in...});
  if (index.dense()) return map_dense(device, f, count, writable<Out>(out), elements<In>(in)...);
  launch(device, map_strided_kernel<F, Out, In...>, grid_of_threads(device, count), block_threads, 0, f, index, count,
         writable<Out>(out), elements<In>(in)...);
}

}  // namespace ddprun::cuda
