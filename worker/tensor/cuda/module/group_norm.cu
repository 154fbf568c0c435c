#include "worker/tensor/cuda/module/group_norm.h"
#include "worker/tensor/cuda/module/group_norm_rows.h"
#include "worker/tensor/cuda/module/visit_norm_types.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cuda {
namespace {

template <class Stored, class Out>
struct NormArguments {
  using T = ComputeType<Stored>;
  const Stored *x, *weight, *bias;
  T *mean, *inverse;
  Out* y;
  T eps;
  bool centred;
};

// The variance is the mean of squared distances, which loses nothing where the mean is large.
template <int threads, class Stored, class Out>
__global__ void __launch_bounds__(block_threads, 1)
    group_norm_kernel(NormRows shape, NormArguments<Stored, Out> in, bool fits) {
  using T = ComputeType<Stored>;
  constexpr int size = pack_size<Stored>;
  const std::int64_t length = shape.length();
  Chunk<Stored>* const cache = cache_of<threads, Stored>(fits, length, 1, 0);
  for_each_norm_row<threads>(shape.rows, [&](std::int64_t row) {
    const CachedRow<Stored> x(in.x + row * length, shape.aligned, cache);
    T total = 0;
    for_each_chunk<threads, Stored>(length, [&](std::int64_t first, std::int64_t count) {
      const auto chunk = x.fetch(first, count);
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k) total += chunk.values[k];
    });
    const T n = static_cast<T>(length);
    const T mean = in.centred ? reduce_group<threads>(total, Plus{}) / n : T(0);
    T squares = 0;
    for_each_chunk<threads, Stored>(length, [&](std::int64_t first, std::int64_t count) {
      const auto chunk = x.again(first, count);
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k) {
        const T distance = k < count ? chunk.values[k] - mean : T(0);
        squares += distance * distance;
      }
    });
    const T inverse = T(1) / functor::sqrt(reduce_group<threads>(squares, Plus{}) / n + in.eps);
    if (threadIdx.x % threads == 0) {
      if (in.mean != nullptr) in.mean[row] = mean;
      in.inverse[row] = inverse;
    }
    const std::int64_t channel = shape.first_channel(row);
    for_each_chunk<threads, Stored>(length, [&](std::int64_t first, std::int64_t count) {
      auto chunk = x.again(first, count);
      const auto weight = load_parameters(shape, in.weight, channel, first, count, T(1));
      const auto bias = load_parameters(shape, in.bias, channel, first, count, T(0));
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k)
        chunk.values[k] = (chunk.values[k] - mean) * inverse * weight.values[k] + bias.values[k];
      store_values<Out>(chunk, count, shape.aligned, in.y + row * length + first);
    });
  });
}

template <class Stored, class Out>
void normalize(DeviceContext& device, const View& x, const kernels::Axis& groups, bool centred, double eps,
               const View& weight, const View& bias, const View& mean, const View& inverse, const View& out) {
  using T = ComputeType<Stored>;
  const NormArguments<Stored, Out> in{.x = elements<Stored>(x),
                                      .weight = elements<Stored>(weight),
                                      .bias = elements<Stored>(bias),
                                      .mean = writable<T>(mean),
                                      .inverse = writable<T>(inverse),
                                      .y = writable<Out>(out),
                                      .eps = static_cast<T>(eps),
                                      .centred = centred};
  NormRows shape = norm_rows<Stored>(groups, weight.data != nullptr ? weight : bias, {in.x, in.weight, in.bias});
  shape.aligned = shape.aligned && is_aligned<pack_size<Stored>>(in.y);
  visit_norm_groups<Stored>(device, shape, 1, [&]<int threads>(std::size_t shared_bytes, unsigned blocks) {
    launch(device, group_norm_kernel<threads, Stored, Out>, blocks, block_threads, shared_bytes, shape, in,
           shared_bytes > 0);
  });
}

}  // namespace

void group_norm(DeviceContext& device, const View& x, const kernels::Axis& groups, bool centred, double eps,
                const View& weight, const View& bias, const View& mean, const View& inverse, const View& out) {
  if (groups.outer == 0) return;
  visit_norm_types(device, "group_norm", x.dtype, out.dtype, [&]<class Stored, class Out>() {
    normalize<Stored, Out>(device, x, groups, centred, eps, weight, bias, mean, inverse, out);
  });
}

}  // namespace ddprun::cuda
