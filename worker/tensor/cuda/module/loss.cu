#include <algorithm>

#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/loss.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cuda {
namespace {

using kernels::CrossEntropyOptions;

// --- the loss

// The sum of the losses of some rows, and the number of those that count.
struct Losses {
  double total;
  std::int64_t rows;
};

__device__ Losses shuffle_xor(Losses losses, int lanes) {
  return {__shfl_xor_sync(whole_warp, losses.total, lanes), __shfl_xor_sync(whole_warp, losses.rows, lanes)};
}
struct Together {
  __device__ Losses operator()(Losses a, Losses b) const { return {a.total + b.total, a.rows + b.rows}; }
};

constexpr std::int64_t rows_of_block = 2048;

// With smoothing s over C classes the target distribution is 1 - s at the target plus s / C everywhere. row_sums: those
// of the log-probabilities, or null without smoothing.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    losses_kernel(CrossEntropyOptions options, std::int64_t rows, std::int64_t classes, const T* log_probabilities,
                  const std::int64_t* targets, const ComputeType<T>* row_sums, Losses* losses) {
  const double smoothing = options.label_smoothing;
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * rows_of_block;
  const std::int64_t end = std::min(start + rows_of_block, rows);
  Losses own{0, 0};
  for (std::int64_t row = start + threadIdx.x; row < end; row += block_threads) {
    const std::int64_t target = targets[row];
    if (target == options.ignore_index) continue;
    ++own.rows;
    own.total -=
        (1 - smoothing) * static_cast<double>(static_cast<ComputeType<T>>(log_probabilities[row * classes + target]));
    if (row_sums != nullptr) own.total -= smoothing / static_cast<double>(classes) * static_cast<double>(row_sums[row]);
  }
  own = reduce_block<block_threads>(own, Together{});
  if (threadIdx.x == 0) losses[blockIdx.x] = own;
}

template <class T>
__global__ void __launch_bounds__(block_threads, 1) mean_kernel(std::int64_t count, const Losses* losses, T* loss) {
  Losses own{0, 0};
  for (std::int64_t i = threadIdx.x; i < count; i += block_threads) own = Together{}(own, losses[i]);
  own = reduce_block<block_threads>(own, Together{});
  if (threadIdx.x == 0) *loss = T(static_cast<ComputeType<T>>(own.total / static_cast<double>(own.rows)));
}

// --- gradients; one block counts the rows, as it does it in a few microseconds

__global__ void __launch_bounds__(block_threads, 1)
    count_kernel(std::int64_t ignore_index, std::int64_t rows, const std::int64_t* targets, std::int64_t* counted) {
  std::int64_t own = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += block_threads) own += targets[row] != ignore_index;
  own = reduce_block<block_threads>(own, Plus{});
  if (threadIdx.x == 0) *counted = own;
}

// The gradient of a row's loss by its log-probabilities: the value everywhere, and what is added at the target.
template <class T>
struct LikelihoodGradient {
  using C = ComputeType<T>;
  C everywhere, at_target;

  __device__ LikelihoodGradient(const CrossEntropyOptions& options, double share, std::int64_t classes)
      : everywhere(options.label_smoothing != 0
                       ? static_cast<C>(-share * options.label_smoothing / static_cast<double>(classes))
                       : C(0)),
        at_target(static_cast<C>(-share * (1 - options.label_smoothing))) {}
  __device__ T operator()(C) const { return T(everywhere); }
};

// The gradient by the scores: share * (probability - target distribution).
template <class T>
struct CrossEntropyGradient {
  using C = ComputeType<T>;
  C factor, everywhere, at_target;

  __device__ CrossEntropyGradient(const CrossEntropyOptions& options, double share, std::int64_t classes)
      : factor(static_cast<C>(share)),
        everywhere(static_cast<C>(options.label_smoothing / static_cast<double>(classes))),
        at_target(-static_cast<C>(share * (1 - options.label_smoothing))) {}
  __device__ T operator()(C log_probability) const { return T(factor * (functor::exp(log_probability) - everywhere)); }
};

// At the target the result is rounded twice, as on the CPU.
template <class Gradient, class T>
__global__ void __launch_bounds__(block_threads, 1)
    gradient_kernel(CrossEntropyOptions options, double factor, const std::int64_t* counted, Divider classes,
                    std::int64_t count, const T* log_probabilities, const std::int64_t* targets, T* out) {
  using C = ComputeType<T>;
  constexpr int size = pack_size<T>;
  const bool aligned = is_aligned<size>(log_probabilities) && is_aligned<size>(out);
  const Gradient gradient(options, factor / static_cast<double>(*counted), classes.divisor());
  for (std::int64_t first = thread_of_grid() * size; first < count; first += threads_of_grid() * size) {
    const int some = static_cast<int>(std::min<std::int64_t>(size, count - first));
    Pack<T, size> pack = load_some<size>(log_probabilities, first, some, aligned);
    std::int64_t row = classes.quotient(first), at = first - row * classes.divisor();
    std::int64_t target = targets[row];
    for (int k = 0; k < size; ++k) {
      if (k >= some) break;
      if (at == classes.divisor()) {
        at = 0;
        target = targets[++row];
      }
      T value = gradient(static_cast<C>(pack.elements[k]));
      if (at == target) value = T(static_cast<C>(value) + gradient.at_target);
      pack.elements[k] = target == options.ignore_index ? T(C(0)) : value;
      ++at;
    }
    store_some(pack, out, first, some, aligned);
  }
}

template <template <class> class Gradient>
void write_gradient(DeviceContext& device, const char* operation, const View& log_probabilities, const View& targets,
                    const CrossEntropyOptions& options, double factor, const View& out) {
  const std::int64_t count = element_count(out);
  if (count == 0) return;
  const Scratch counted = scratch_for<std::int64_t>(device, 1);
  launch(device, count_kernel, 1, block_threads, 0, options.ignore_index, element_count(targets),
         elements<std::int64_t>(targets), counted.data<std::int64_t>());
  visit_floating(device, operation, out.dtype, [&]<class T>() {
    launch(device, gradient_kernel<Gradient<T>, T>, grid_of_threads(device, divide_up(count, pack_size<T>)),
           block_threads, 0, options, factor, static_cast<const std::int64_t*>(counted.data<std::int64_t>()),
           Divider(out.shape[1]), count, elements<T>(log_probabilities), elements<std::int64_t>(targets),
           writable<T>(out));
  });
}

}  // namespace

void nll_loss(DeviceContext& device, const View& log_probabilities, const View& targets,
              const CrossEntropyOptions& options, const View& loss) {
  const std::int64_t rows = log_probabilities.shape[0], classes = log_probabilities.shape[1];
  const std::int64_t blocks = divide_up(rows, rows_of_block);
  const Scratch losses = scratch_for<Losses>(device, blocks);
  visit_floating(device, "nll_loss", log_probabilities.dtype, [&]<class T>() {
    using C = ComputeType<T>;
    const Scratch row_sums = scratch_for<C>(device, options.label_smoothing != 0 ? rows : 0);
    if (row_sums.data() != nullptr) sum_rows(device, rows, classes, elements<T>(log_probabilities), row_sums.data<C>());
    if (blocks > 0) {
      launch(device, losses_kernel<T>, static_cast<unsigned>(blocks), block_threads, 0, options, rows, classes,
             elements<T>(log_probabilities), elements<std::int64_t>(targets), static_cast<const C*>(row_sums.data<C>()),
             losses.data<Losses>());
    }
    launch(device, mean_kernel<T>, 1, block_threads, 0, blocks, static_cast<const Losses*>(losses.data<Losses>()),
           writable<T>(loss));
  });
}

void nll_loss_backward(DeviceContext& device, const View& log_probabilities, const View& targets,
                       const CrossEntropyOptions& options, double factor, const View& out) {
  write_gradient<LikelihoodGradient>(device, "nll_loss_backward", log_probabilities, targets, options, factor, out);
}

void cross_entropy_backward(DeviceContext& device, const View& log_probabilities, const View& targets,
                            const CrossEntropyOptions& options, double factor, const View& out) {
  write_gradient<CrossEntropyGradient>(device, "cross_entropy_backward", log_probabilities, targets, options, factor,
                                       out);
}

}  // namespace ddprun::cuda
