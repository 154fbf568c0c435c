#include "worker/tensor/cuda/module/columns.h"
#include "worker/tensor/cuda/module/group_norm.h"
#include "worker/tensor/cuda/module/group_norm_rows.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

// The gradient of x is made row by row. Those of weight and bias are sums over rows: of segments of them by many blocks
// at once, then of the segments, each in a fixed order.
namespace ddprun::cuda {
namespace {

template <class Stored>
struct NormGradientArguments {
  using T = ComputeType<Stored>;
  const Stored *x, *grad, *weight;
  const T *mean, *inverse;  // mean: null where it was not subtracted
  Stored* x_grad;
};

template <class T>
struct RowStatistics {
  T mean, inverse;
};
template <class Stored>
__device__ __forceinline__ RowStatistics<ComputeType<Stored>> statistics_of(const NormGradientArguments<Stored>& in,
                                                                            std::int64_t row) {
  return {in.mean == nullptr ? ComputeType<Stored>(0) : in.mean[row], in.inverse[row]};
}

// With h = (x - mean) inverse over the n values of a row and g = grad weight:
// d x = inverse (g - mean(g) - h mean(g h)), the middle term only where the mean was subtracted.
template <int threads, class Stored>
__global__ void __launch_bounds__(block_threads, 1)
    group_norm_gradient_kernel(NormRows shape, NormGradientArguments<Stored> in, bool centred, bool fits) {
  using T = ComputeType<Stored>;
  constexpr int size = pack_size<Stored>;
  const std::int64_t length = shape.length();
  Chunk<Stored>* const x_cache = cache_of<threads, Stored>(fits, length, 2, 0);
  Chunk<Stored>* const grad_cache = cache_of<threads, Stored>(fits, length, 2, 1);
  for_each_norm_row<threads>(shape.rows, [&](std::int64_t row) {
    const auto [mean, inverse] = statistics_of(in, row);
    const std::int64_t channel = shape.first_channel(row), start = row * length;
    const CachedRow<Stored> x(in.x + start, shape.aligned, x_cache);
    const CachedRow<Stored> grad(in.grad + start, shape.aligned, grad_cache);
    // x becomes h, and its gradient g.
    const auto normalize = [&](std::int64_t first, std::int64_t count, ChunkValues<Stored>& h, ChunkValues<Stored>& g) {
      const auto weight = load_parameters(shape, in.weight, channel, first, count, T(1));
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k) {
        h.values[k] = (h.values[k] - mean) * inverse;
        g.values[k] *= weight.values[k];
      }
    };
    T total = 0, product = 0;
    for_each_chunk<threads, Stored>(length, [&](std::int64_t first, std::int64_t count) {
      ChunkValues<Stored> h = x.fetch(first, count), g = grad.fetch(first, count);
      normalize(first, count, h, g);
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k) {
        total += g.values[k];  // 0 beyond the row
        product += g.values[k] * h.values[k];
      }
    });
    const T n = static_cast<T>(length);
    total = centred ? reduce_group<threads>(total, Plus{}) / n : T(0);
    product = reduce_group<threads>(product, Plus{}) / n;
    for_each_chunk<threads, Stored>(length, [&](std::int64_t first, std::int64_t count) {
      ChunkValues<Stored> h = x.again(first, count), g = grad.again(first, count);
      normalize(first, count, h, g);
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k) g.values[k] = inverse * (g.values[k] - total - h.values[k] * product);
      store_chunk(narrowed<Stored>(g), count, shape.aligned, in.x_grad + start + first);
    });
  });
}

// (samples, parameters, inner) in segments of samples, of which each gives a row of partial sums: (segments,
// parameters) of the gradients of weight and of bias.
struct ParameterSums {
  std::int64_t samples, parameters, inner;
  std::int64_t segment;  // the samples of a segment
  std::int64_t segments;
};

// The number of values of a parameter that a segment has, or one sample more: their error is that of a sum of so many.
constexpr std::int64_t segment_values = 1024;

// Where inner is 1, a thread has `size` neighbouring parameters and every rows_of_tile-th sample of a segment.
template <int size, class Stored>
__global__ void __launch_bounds__(block_threads, 1)
    sum_parameter_columns_kernel(ParameterSums sums, Divider channels, NormGradientArguments<Stored> in,
                                 ComputeType<Stored>* weight_sums, ComputeType<Stored>* bias_sums) {
  using T = ComputeType<Stored>;
  constexpr int columns = lanes_of_tile * size;
  __shared__ T of_weight[rows_of_tile][columns];
  __shared__ T of_bias[rows_of_tile][columns];
  const int lane = static_cast<int>(threadIdx.x) % lanes_of_tile,
            tile_row = static_cast<int>(threadIdx.x) / lanes_of_tile;
  const std::int64_t tiles = divide_up(sums.parameters, columns);
  const std::int64_t groups = sums.parameters / channels.divisor();  // those of a sample
  for (std::int64_t piece = blockIdx.x; piece < sums.segments * tiles; piece += gridDim.x) {
    const std::int64_t segment = piece / tiles, first_column = piece % tiles * columns;
    const std::int64_t column = first_column + lane * size;
    const std::int64_t end = (segment + 1) * sums.segment < sums.samples ? (segment + 1) * sums.segment : sums.samples;
    T weight_total[size] = {}, bias_total[size] = {};
    if (column < sums.parameters) {
      std::int64_t group[size];
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k) group[k] = channels.quotient(column + k);
      for (std::int64_t sample = segment * sums.segment + tile_row; sample < end; sample += rows_of_tile) {
        const std::int64_t at = sample * sums.parameters + column;
        const auto x = load_pack<size>(in.x + at, true);
        const auto grad = load_pack<size>(in.grad + at, true);
        DDPRUN_UNROLL
        for (int k = 0; k < size; ++k) {
          const auto [mean, inverse] = statistics_of(in, sample * groups + group[k]);
          const T g = static_cast<T>(grad.elements[k]);
          weight_total[k] += g * ((static_cast<T>(x.elements[k]) - mean) * inverse);
          bias_total[k] += g;
        }
      }
    }
    DDPRUN_UNROLL
    for (int k = 0; k < size; ++k) {
      of_weight[tile_row][k * lanes_of_tile + lane] = weight_total[k];
      of_bias[tile_row][k * lanes_of_tile + lane] = bias_total[k];
    }
    __syncthreads();
    // Column k of a lane is k * lanes_of_tile away.
    for (int i = static_cast<int>(threadIdx.x); i < columns; i += block_threads) {
      const std::int64_t parameter = first_column + i % lanes_of_tile * size + i / lanes_of_tile;
      if (parameter >= sums.parameters) continue;
      T weight_sum = 0, bias_sum = 0;
      for (int r = 0; r < rows_of_tile; ++r) {
        weight_sum += of_weight[r][i];
        bias_sum += of_bias[r][i];
      }
      weight_sums[segment * sums.parameters + parameter] = weight_sum;
      bias_sums[segment * sums.parameters + parameter] = bias_sum;
    }
    __syncthreads();  // before the next piece is written
  }
}

// Where inner is more than 1, a block has one parameter of a segment.
template <class Stored>
__global__ void __launch_bounds__(block_threads, 1)
    sum_parameter_planes_kernel(ParameterSums sums, Divider channels, Divider inner, NormGradientArguments<Stored> in,
                                ComputeType<Stored>* weight_sums, ComputeType<Stored>* bias_sums) {
  using T = ComputeType<Stored>;
  const std::int64_t groups = sums.parameters / channels.divisor();  // those of a sample
  for (std::int64_t piece = blockIdx.x; piece < sums.segments * sums.parameters; piece += gridDim.x) {
    const std::int64_t segment = piece / sums.parameters, parameter = piece % sums.parameters;
    const std::int64_t group = channels.quotient(parameter), first = segment * sums.segment;
    const std::int64_t count = first + sums.segment < sums.samples ? sums.segment : sums.samples - first;
    T weight_total = 0, bias_total = 0;
    for (std::int64_t i = threadIdx.x; i < count * sums.inner; i += block_threads) {
      const std::int64_t of_segment = inner.quotient(i), sample = first + of_segment;
      const std::int64_t at = (sample * sums.parameters + parameter) * sums.inner + i - of_segment * sums.inner;
      const auto [mean, inverse] = statistics_of(in, sample * groups + group);
      const T g = static_cast<T>(in.grad[at]);
      weight_total += g * ((static_cast<T>(in.x[at]) - mean) * inverse);
      bias_total += g;
    }
    weight_total = reduce_group<block_threads>(weight_total, Plus{});
    bias_total = reduce_group<block_threads>(bias_total, Plus{});
    if (threadIdx.x != 0) continue;
    weight_sums[piece] = weight_total;
    bias_sums[piece] = bias_total;
  }
}

template <class Stored>
void launch_parameter_sums(DeviceContext& device, const ParameterSums& sums, std::int64_t channels,
                           const NormGradientArguments<Stored>& in, ComputeType<Stored>* weight_sums,
                           ComputeType<Stored>* bias_sums) {
  constexpr int wide = pack_size<Stored>;
  const auto launch_columns = [&]<int size>() {
    const std::int64_t tiles = divide_up(sums.parameters, lanes_of_tile * size);
    launch(device, sum_parameter_columns_kernel<size, Stored>, grid_of_blocks(device, sums.segments * tiles),
           block_threads, 0, sums, Divider(channels), in, weight_sums, bias_sums);
  };
  if (sums.inner > 1)
    launch(device, sum_parameter_planes_kernel<Stored>, grid_of_blocks(device, sums.segments * sums.parameters),
           block_threads, 0, sums, Divider(channels), Divider(sums.inner), in, weight_sums, bias_sums);
  else if (sums.parameters % wide == 0 && is_aligned<wide>(in.x) && is_aligned<wide>(in.grad))
    launch_columns.template operator()<wide>();
  else
    launch_columns.template operator()<1>();
}

template <class Stored>
void parameter_gradients(DeviceContext& device, const kernels::Axis& groups, const NormGradientArguments<Stored>& in,
                         const View& weight_grad, const View& bias_grad) {
  using T = ComputeType<Stored>;
  const std::int64_t parameters = element_count(weight_grad.data != nullptr ? weight_grad : bias_grad);
  if (parameters == 0) return;
  const std::int64_t samples = groups.outer * groups.n / parameters;
  const std::int64_t segment = divide_up(segment_values, std::max<std::int64_t>(groups.inner, 1));
  const ParameterSums sums{samples, parameters, groups.inner, segment, divide_up(samples, segment)};
  const std::int64_t count = sums.segments * parameters;
  const Scratch memory = scratch_for<T>(device, 2 * count);
  T* const weight_sums = memory.data<T>();
  T* const bias_sums = weight_sums + count;
  if (count > 0) launch_parameter_sums(device, sums, groups.n, in, weight_sums, bias_sums);
  const kernels::Axis of_segments{1, sums.segments, parameters};
  const auto finish = [&](const View& gradient, const T* partial) {
    if (gradient.data != nullptr) sum_columns(device, of_segments, partial, writable<Stored>(gradient), false);
  };
  finish(weight_grad, weight_sums);
  finish(bias_grad, bias_sums);
}

}  // namespace

void group_norm_backward(DeviceContext& device, const View& x, const View& grad, const kernels::Axis& groups,
                         bool centred, const View& mean, const View& inverse, const View& weight, const View& x_grad,
                         const View& weight_grad, const View& bias_grad) {
  visit_floating(device, "group_norm_backward", x.dtype, [&]<class Stored>() {
    using T = ComputeType<Stored>;
    const NormGradientArguments<Stored> in{.x = elements<Stored>(x),
                                           .grad = elements<Stored>(grad),
                                           .weight = elements<Stored>(weight),
                                           .mean = centred ? elements<T>(mean) : nullptr,
                                           .inverse = elements<T>(inverse),
                                           .x_grad = writable<Stored>(x_grad)};
    const NormRows shape = norm_rows<Stored>(groups, weight, {in.x, in.grad, in.weight, in.x_grad});
    if (groups.outer > 0) {
      visit_norm_groups<Stored>(device, shape, 2, [&]<int threads>(std::size_t shared_bytes, unsigned blocks) {
        launch(device, group_norm_gradient_kernel<threads, Stored>, blocks, block_threads, shared_bytes, shape, in,
               centred, shared_bytes > 0);
      });
    }
    if (weight_grad.data != nullptr || bias_grad.data != nullptr)
      parameter_gradients(device, groups, in, weight_grad, bias_grad);
  });
}

}  // namespace ddprun::cuda
