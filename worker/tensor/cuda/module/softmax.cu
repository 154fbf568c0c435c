#include <limits>

#include "worker/tensor/cuda/module/reduction.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cuda {
namespace {

using kernels::Axis;

// A NaN prevails.
struct Larger {
  template <class C>
  DDPRUN_HOST_DEVICE C operator()(C a, C b) const {
    return b > a || functor::is_nan(b) ? b : a;
  }
};

// out[i] = f(in[i]...) for the elements of the row that this thread has.
template <int threads, class T, class F, class... In>
__device__ void map_row(std::int64_t n, T* out, const F& f, const In*... in) {
  constexpr int size = pack_size<T>;
  const bool aligned = is_aligned<size>(out) && (is_aligned<size>(in) && ...);
  RowGroup<threads>::template for_each_pack<size>(n, [&](std::int64_t first, int count) {
    store_some(map_packs<T, size>(f, load_some<size>(in, first, count, aligned)...), out, first, count, aligned);
  });
}

template <int threads, class T>
__global__ void __launch_bounds__(block_threads, 1)
    softmax_kernel(std::int64_t rows, std::int64_t n, bool log, const T* x, T* y) {
  using C = ComputeType<T>;
  RowGroup<threads>::for_each_row(rows, [&](std::int64_t row) {
    const T* from = x + row * n;
    C highest = -std::numeric_limits<C>::infinity();
    for_each_element<threads>(from, n, [&](std::int64_t, C value) { highest = Larger{}(highest, value); });
    highest = reduce_group<threads>(highest, Larger{});
    C total = 0;
    for_each_element<threads>(from, n, [&](std::int64_t, C value) { total += functor::exp(value - highest); });
    total = reduce_group<threads>(total, Plus{});
    if (log) {
      const C log_total = functor::log(total);
      map_row<threads>(
          n, y + row * n, [&](T value) { return static_cast<C>(value) - highest - log_total; }, from);
    } else {
      const C share = C(1) / total;
      map_row<threads>(
          n, y + row * n, [&](T value) { return functor::exp(static_cast<C>(value) - highest) * share; }, from);
    }
  });
}

template <int threads, class T>
__global__ void __launch_bounds__(block_threads, 1)
    softmax_gradient_kernel(std::int64_t rows, std::int64_t n, bool log, const T* y, const T* grad, T* out) {
  using C = ComputeType<T>;
  RowGroup<threads>::for_each_row(rows, [&](std::int64_t row) {
    const T *value = y + row * n, *slope = grad + row * n;
    C total = 0;
    constexpr int size = pack_size<T>;
    const bool aligned = is_aligned<size>(value) && is_aligned<size>(slope);
    RowGroup<threads>::template for_each_pack<size>(n, [&](std::int64_t first, int count) {
      const Pack<T, size> p = load_some<size>(value, first, count, aligned);
      const Pack<T, size> g = load_some<size>(slope, first, count, aligned);
      for (int k = 0; k < size; ++k)
        if (k < count) total += static_cast<C>(g.elements[k]) * (log ? C(1) : static_cast<C>(p.elements[k]));
    });
    total = reduce_group<threads>(total, Plus{});
    if (log)
      map_row<threads>(
          n, out + row * n, [&](T p, T g) { return static_cast<C>(g) - functor::exp(static_cast<C>(p)) * total; },
          value, slope);
    else
      map_row<threads>(
          n, out + row * n, [&](T p, T g) { return static_cast<C>(p) * (static_cast<C>(g) - total); }, value, slope);
  });
}

}  // namespace

void softmax(DeviceContext& device, const View& x, const Axis& rows, bool log, const View& y) {
  if (rows.outer == 0 || rows.n == 0) return;
  visit_floating(device, "softmax", x.dtype, [&]<class T>() {
    with_group_for(rows.n, [&]<int threads>() {
      launch(device, softmax_kernel<threads, T>, RowGroup<threads>::grid(device, rows.outer), block_threads, 0,
             rows.outer, rows.n, log, elements<T>(x), writable<T>(y));
    });
  });
}

void softmax_gradient(DeviceContext& device, const View& y, const View& grad, const Axis& rows, bool log,
                      const View& out) {
  if (rows.outer == 0 || rows.n == 0) return;
  visit_floating(device, "softmax_gradient", y.dtype, [&]<class T>() {
    with_group_for(rows.n, [&]<int threads>() {
      launch(device, softmax_gradient_kernel<threads, T>, RowGroup<threads>::grid(device, rows.outer), block_threads, 0,
             rows.outer, rows.n, log, elements<T>(y), elements<T>(grad), writable<T>(out));
    });
  });
}

}  // namespace ddprun::cuda
