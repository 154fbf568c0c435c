#include <cstdint>
#include <limits>

#include "worker/tensor/cuda/module/reduction.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cuda {
namespace {

using kernels::Axis;

template <class C>
struct Candidate {
  C value;
  std::int64_t at;
};

template <class C>
__device__ Candidate<C> shuffle_xor(Candidate<C> candidate, int lanes) {
  return {__shfl_xor_sync(whole_warp, candidate.value, lanes), __shfl_xor_sync(whole_warp, candidate.at, lanes)};
}

// A NaN is larger than everything, and equal to another NaN.
template <class C>
__device__ bool is_larger(C a, C b) {
  return a > b || (functor::is_nan(a) && !functor::is_nan(b));
}

// Takes the larger one, and of equals the first.
struct First {
  template <class C>
  __device__ Candidate<C> operator()(Candidate<C> a, Candidate<C> b) const {
    if (is_larger(a.value, b.value)) return a;
    if (is_larger(b.value, a.value)) return b;
    return a.at < b.at ? a : b;
  }
};

template <int threads, class T>
__global__ void __launch_bounds__(block_threads, 1)
    max_rows_kernel(std::int64_t rows, std::int64_t n, const T* x, T* out, std::int64_t* index) {
  using C = ComputeType<T>;
  RowGroup<threads>::for_each_row(rows, [&](std::int64_t row) {
    const T* from = x + row * n;
    Candidate<C> best{-std::numeric_limits<C>::infinity(), n};  // behind every element
    for_each_element<threads>(from, n, [&](std::int64_t at, C value) {
      best = First{}(best, Candidate<C>{value, at});
    });
    best = reduce_group<threads>(best, First{});
    if (RowGroup<threads>::thread() != 0) return;
    out[row] = from[best.at];
    index[row] = best.at;
  });
}

// A thread has a column.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    max_columns_kernel(Axis axis, const T* x, T* out, std::int64_t* index) {
  using C = ComputeType<T>;
  for (std::int64_t i = thread_of_grid(); i < axis.outer * axis.inner; i += threads_of_grid()) {
    const T* from = x + i / axis.inner * axis.n * axis.inner + i % axis.inner;
    Candidate<C> best{static_cast<C>(from[0]), 0};
    for (std::int64_t n = 1; n < axis.n; ++n)
      best = First{}(best, Candidate<C>{static_cast<C>(from[n * axis.inner]), n});
    out[i] = from[best.at * axis.inner];
    index[i] = best.at;
  }
}

}  // namespace

void max(DeviceContext& device, const View& x, const Axis& axis, const View& out, const View& index) {
  const std::int64_t lines = axis.outer * axis.inner;
  if (lines == 0) return;
  visit_floating(device, "max", x.dtype, [&]<class T>() {
    if (axis.inner != 1) {
      return launch(device, max_columns_kernel<T>, grid_of_threads(device, lines), block_threads, 0, axis,
                    elements<T>(x), writable<T>(out), writable<std::int64_t>(index));
    }
    with_group_for(axis.n, [&]<int threads>() {
      launch(device, max_rows_kernel<threads, T>, RowGroup<threads>::grid(device, lines), block_threads, 0, lines,
             axis.n, elements<T>(x), writable<T>(out), writable<std::int64_t>(index));
    });
  });
}

}  // namespace ddprun::cuda
