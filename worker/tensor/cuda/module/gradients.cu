#include "worker/tensor/cuda/module/check.h"
#include "worker/tensor/cuda/module/optimizer.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/tensor_table.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/cuda/module/zero.h"
#include "worker/tensor/functors/unary.h"

// Operations on all gradients of a model before an optimizer's step.
namespace ddprun::cuda {
namespace {

// x[i] = f(x[i]), where `observe` sees each element before. f gets the type of computation.
template <class T, class F, class Observe>
__device__ void map_chunk(T* x, std::int64_t count, const F& f, const Observe& observe) {
  using C = ComputeType<T>;
  constexpr int size = pack_size<T>;
  const bool aligned = is_aligned<size>(x);
  RowGroup<block_threads>::for_each_pack<size>(count, [&](std::int64_t first, int some) {
    Pack<T, size> pack = load_some<size>(x, first, some, aligned);
    for (int k = 0; k < size; ++k) {
      const C value = static_cast<C>(pack.elements[k]);
      observe(value);
      pack.elements[k] = T(f(value));
    }
    store_some(pack, x, first, some, aligned);
  });
}

template <class T>
__device__ T* chunk_of(const TensorTable<1>& table, int tensor, std::int64_t first) {
  return static_cast<T*>(table.data[0][tensor]) + first;
}

// sums[chunk] = the sum of the chunk's squares, in double.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    square_sum_kernel(const __grid_constant__ TensorTable<1> table, double* sums) {
  for_each_chunk(table, [&](int tensor, std::int64_t first, std::int64_t count, int chunk) {
    double total = 0;
    for_each_element<block_threads>(static_cast<const T*>(chunk_of<T>(table, tensor, first)), count,
                                    [&](std::int64_t, ComputeType<T> x) {
                                      const auto wide = static_cast<double>(x);
                                      total += wide * wide;
                                    });
    total = reduce_block<block_threads>(total, Plus{});
    if (threadIdx.x == 0) sums[chunk] = total;
  });
}

// Works like the host's clip_grads_with_norm(): nothing is written where the norm is small enough. A NaN is passed on.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    clip_to_norm_kernel(const __grid_constant__ TensorTable<1> table, double max_norm, const double* square_sum) {
  const double factor = max_norm / (functor::sqrt(*square_sum) + 1e-6);
  if (factor >= 1) return;
  const functor::Scale scale({.a = factor});
  for_each_chunk(table, [&](int tensor, std::int64_t first, std::int64_t count, int) {
    map_chunk(chunk_of<T>(table, tensor, first), count, scale, [](auto) {});
  });
}

template <class T, class F>
__global__ void __launch_bounds__(block_threads, 1)
    map_each_kernel(const __grid_constant__ TensorTable<1> table, const __grid_constant__ F f) {
  for_each_chunk(table, [&](int tensor, std::int64_t first, std::int64_t count, int) {
    map_chunk(chunk_of<T>(table, tensor, first), count, f, [](auto) {});
  });
}

// Every block that finds something writes the same value.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    unscale_kernel(const __grid_constant__ TensorTable<1> table, const double* loss_scale, float* not_finite) {
  const functor::Scale scale({.a = 1 / *loss_scale});
  for_each_chunk(table, [&](int tensor, std::int64_t first, std::int64_t count, int) {
    int found = 0;
    map_chunk(chunk_of<T>(table, tensor, first), count, scale, [&](auto x) {
      if (!(x - x == 0)) found = 1;
    });
    found = reduce_block<block_threads>(found, Plus{});
    if (threadIdx.x == 0 && found > 0) *not_finite = 1;
  });
}

}  // namespace

void square_sum(DeviceContext& device, std::size_t count, const View* tensors, const View& sum) {
  const TensorLists<1> lists{count, {tensors}};
  const std::int64_t chunks = lists.chunks();
  if (chunks == 0) return zero(device, sum);
  const Scratch partial = scratch_for<double>(device, chunks);
  auto* of_table = partial.data<double>();
  lists.for_each_table([&](const TensorTable<1>& table, DType dtype) {
    visit_floating(device, "square_sum", dtype, [&]<class T>() {
      launch(device, square_sum_kernel<T>, grid_of_blocks(device, table.chunks()), block_threads, 0, table, of_table);
    });
    of_table += table.chunks();
  });
  sum_rows(device, 1, chunks, static_cast<const double*>(partial.data<double>()), writable<double>(sum));
}

void clip_to_norm(DeviceContext& device, std::size_t count, const View* tensors, double max_norm,
                  const View& square_sum) {
  TensorLists<1>{count, {tensors}}.for_each_table([&](const TensorTable<1>& table, DType dtype) {
    visit_floating(device, "clip_to_norm", dtype, [&]<class T>() {
      launch(device, clip_to_norm_kernel<T>, grid_of_blocks(device, table.chunks()), block_threads, 0, table, max_norm,
             elements<double>(square_sum));
    });
  });
}

void clip_to_value(DeviceContext& device, std::size_t count, const View* tensors, double max_value) {
  const functor::Clamp clamp({.a = -max_value, .b = max_value});
  TensorLists<1>{count, {tensors}}.for_each_table([&](const TensorTable<1>& table, DType dtype) {
    visit_floating(device, "clip_to_value", dtype, [&]<class T>() {
      launch(device, map_each_kernel<T, functor::Clamp>, grid_of_blocks(device, table.chunks()), block_threads, 0,
             table, clamp);
    });
  });
}

void unscale(DeviceContext& device, std::size_t count, const View* tensors, const View& scale, const View& not_finite) {
  zero(device, not_finite);
  TensorLists<1>{count, {tensors}}.for_each_table([&](const TensorTable<1>& table, DType dtype) {
    visit_floating(device, "unscale", dtype, [&]<class T>() {
      launch(device, unscale_kernel<T>, grid_of_blocks(device, table.chunks()), block_threads, 0, table,
             elements<double>(scale), writable<float>(not_finite));
    });
  });
}

}  // namespace ddprun::cuda
