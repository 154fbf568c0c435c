#include <limits>

#include "worker/tensor/cuda/module/linear_loss.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cuda {
namespace {

using kernels::CrossEntropyOptions;

// The highest of some scores, the sum of exp(score - highest), and the sum of the scores themselves.
template <class C>
struct ScoreSums {
  C highest, exponentials, scores;

  __device__ static C scaled(C sum, C from, C to) { return sum == C(0) ? C(0) : sum * functor::exp(from - to); }
  __device__ ScoreSums operator()(const ScoreSums& a, const ScoreSums& b) const {
    const C most = b.highest > a.highest || functor::is_nan(b.highest) ? b.highest : a.highest;
    return {most, scaled(a.exponentials, a.highest, most) + scaled(b.exponentials, b.highest, most),
            a.scores + b.scores};
  }
};
template <class C>
__device__ ScoreSums<C> shuffle_xor(const ScoreSums<C>& sums, int lanes) {
  return {cuda::shuffle_xor(sums.highest, lanes), cuda::shuffle_xor(sums.exponentials, lanes),
          cuda::shuffle_xor(sums.scores, lanes)};
}

template <int threads, class T>
__device__ ScoreSums<ComputeType<T>> sums_of(const T* row, std::int64_t classes) {
  using C = ComputeType<T>;
  ScoreSums<C> own{std::numeric_limits<C>::lowest(), 0, 0};
  for_each_element<threads>(row, classes, [&](std::int64_t, C score) {
    if (score > own.highest || functor::is_nan(score)) {
      own.exponentials = ScoreSums<C>::scaled(own.exponentials, own.highest, score) + C(1);
      own.highest = score;
    } else {
      own.exponentials += functor::exp(score - own.highest);
    }
    own.scores += score;
  });
  return reduce_group<threads>(own, ScoreSums<C>{});
}

// With smoothing s over C classes the target distribution is 1 - s at the target plus s / C everywhere.
template <int threads, class T>
__global__ void __launch_bounds__(block_threads, 1)
    score_losses_kernel(CrossEntropyOptions options, std::int64_t rows, std::int64_t classes, T* scores,
                        const std::int64_t* targets, double* losses, bool gradients) {
  using C = ComputeType<T>;
  constexpr int size = pack_size<T>;
  const double smoothing = options.label_smoothing;
  const C everywhere = static_cast<C>(smoothing / static_cast<double>(classes));
  const C at_target = static_cast<C>(1 - smoothing);
  RowGroup<threads>::for_each_row(rows, [&](std::int64_t number) {
    T* const row = scores + number * classes;
    const std::int64_t target = targets[number];
    const bool counts = target != options.ignore_index;
    const C of_target = counts ? static_cast<C>(row[target]) : C(0);
    const ScoreSums<C> sums = sums_of<threads>(static_cast<const T*>(row), classes);
    // All lanes have read the target's score before one overwrites it: a block's sums order memory, shuffles do not.
    if constexpr (threads == warp_size) __syncwarp();
    const C log_total = functor::log(sums.exponentials);
    if (RowGroup<threads>::thread() == 0) {
      const double log_sum = static_cast<double>(sums.highest) + static_cast<double>(log_total);
      const double mean = static_cast<double>(sums.scores) / static_cast<double>(classes);
      losses[number] = counts ? log_sum - (1 - smoothing) * static_cast<double>(of_target) - smoothing * mean : 0;
    }
    if (!gradients) return;
    const bool aligned = is_aligned<size>(row);
    RowGroup<threads>::template for_each_pack<size>(classes, [&](std::int64_t first, int count) {
      Pack<T, size> pack = load_some<size>(static_cast<const T*>(row), first, count, aligned);
      for (int k = 0; k < size; ++k) {
        C slope = functor::exp(static_cast<C>(pack.elements[k]) - sums.highest - log_total) - everywhere;
        if (first + k == target) slope -= at_target;
        pack.elements[k] = counts ? T(slope) : T(C(0));
      }
      store_some(pack, row, first, count, aligned);
    });
  });
}

struct LossSum {
  double total;
  std::int64_t rows;
};
__device__ LossSum shuffle_xor(LossSum sum, int lanes) {
  return {cuda::shuffle_xor(sum.total, lanes), __shfl_xor_sync(whole_warp, sum.rows, lanes)};
}
struct BothSums {
  __device__ LossSum operator()(LossSum a, LossSum b) const { return {a.total + b.total, a.rows + b.rows}; }
};

template <class T, class Wide>
__global__ void __launch_bounds__(block_threads, 1)
    mean_loss_kernel(std::int64_t rows, const double* losses, const std::int64_t* targets, std::int64_t ignore_index,
                     T* loss, Wide* share) {
  LossSum own{0, 0};
  for (std::int64_t row = threadIdx.x; row < rows; row += block_threads) {
    own.total += losses[row];
    own.rows += targets[row] != ignore_index;
  }
  own = reduce_block<block_threads>(own, BothSums{});
  if (threadIdx.x != 0) return;
  const double count = static_cast<double>(own.rows);
  *loss = T(static_cast<ComputeType<T>>(own.total / count));
  *share = own.rows > 0 ? static_cast<Wide>(1 / count) : Wide(0);
}

template <class Wide, class Out>
__global__ void __launch_bounds__(block_threads, 1)
    scale_by_kernel(std::int64_t packs, std::int64_t count, const Wide* x, const Wide* a, const Wide* b,
                    bool accumulate, Out* out) {
  constexpr int size = pack_size<Wide, Out>;
  using C = ComputeType<Out>;
  const Wide factor = *a * *b;
  const auto one = [&](Wide value, Out before) {
    return Out(static_cast<C>(value * factor + (accumulate ? static_cast<Wide>(static_cast<C>(before)) : Wide(0))));
  };
  for (std::int64_t i = thread_of_grid(); i < packs; i += threads_of_grid()) {
    const auto values = load_pack<size>(x + i * size, true);
    Pack<Out, size> result{};
    if (accumulate) result = load_pack<size>(static_cast<const Out*>(out + i * size), true);
    for (int k = 0; k < size; ++k) result.elements[k] = one(values.elements[k], result.elements[k]);
    store_pack(result, out + i * size, true);
  }
  for (std::int64_t i = packs * size + thread_of_grid(); i < count; i += threads_of_grid())
    out[i] = one(x[i], accumulate ? out[i] : Out(C(0)));
}

template <class Wide, class Out>
void scale(DeviceContext& device, const View& x, const View& a, const View& b, const View& out, bool accumulate) {
  constexpr int size = pack_size<Wide, Out>;
  const std::int64_t count = element_count(x);
  if (count == 0) return;
  const bool aligned = is_aligned<size>(elements<Wide>(x)) && is_aligned<size>(elements<Out>(out));
  const std::int64_t packs = aligned ? count / size : 0;
  launch(device, scale_by_kernel<Wide, Out>, grid_of_threads(device, aligned ? divide_up(count, size) : count),
         block_threads, 0, packs, count, elements<Wide>(x), elements<Wide>(a), elements<Wide>(b), accumulate,
         writable<Out>(out));
}

}  // namespace

void score_losses(DeviceContext& device, const View& scores, const View& targets, const CrossEntropyOptions& options,
                  double* losses, bool gradients) {
  const std::int64_t rows = scores.shape[0], classes = scores.shape[1];
  visit_floating(device, "linear_cross_entropy", scores.dtype, [&]<class T>() {
    with_group_for(classes, [&]<int threads>() {
      launch(device, score_losses_kernel<threads, T>, RowGroup<threads>::grid(device, rows), block_threads, 0, options,
             rows, classes, writable<T>(scores), elements<std::int64_t>(targets), losses, gradients);
    });
  });
}

void mean_loss(DeviceContext& device, std::int64_t rows, const double* losses, const View& targets,
               std::int64_t ignore_index, const View& loss, const View& share) {
  visit_floating(device, "linear_cross_entropy", loss.dtype, [&]<class T>() {
    using Wide = ComputeType<T>;
    launch(device, mean_loss_kernel<T, Wide>, 1, block_threads, 0, rows, losses, elements<std::int64_t>(targets),
           ignore_index, writable<T>(loss), writable<Wide>(share));
  });
}

void scale_by(DeviceContext& device, const View& x, const View& a, const View& b, const View& out, bool accumulate) {
  if (x.dtype == out.dtype) {
    return visit_wide(device, "scale_by", x.dtype,
                      [&]<class Wide>() { scale<Wide, Wide>(device, x, a, b, out, accumulate); });
  }
  if (x.dtype == DType::float32 && out.dtype == DType::bfloat16)
    return scale<float, BFloat16>(device, x, a, b, out, accumulate);
  if (x.dtype == DType::float32 && out.dtype == DType::float16)
    return scale<float, Float16>(device, x, a, b, out, accumulate);
  refuse_dtype(device, "scale_by", out.dtype);
}

}  // namespace ddprun::cuda
