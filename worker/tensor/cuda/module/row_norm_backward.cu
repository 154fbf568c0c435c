#include "worker/tensor/cuda/module/columns.h"
#include "worker/tensor/cuda/module/group_norm.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/unroll.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_norm_types.h"

// The gradients of rows and of their weight and bias in one pass: a block has a segment of rows, of which it takes a
// tile at a time. First a warp has a row of the tile, for the sums that its gradient needs; then a thread has columns,
// for the gradients, and adds what they give to its columns' weight and bias. The segments' sums are added by a second
// kernel. All orders depend only on the shapes.
namespace ddprun::cuda {
namespace {

constexpr int tile_rows = block_threads / warp_size;
constexpr std::int64_t segment_rows = 64;

template <class Stored, class Grad>
struct RowGradientArguments {
  using T = ComputeType<Stored>;
  const Stored* x;
  const Grad* grad;
  const Stored *addend, *weight;  // null where there is none
  const T *mean, *inverse;        // mean: null where it was not subtracted
  Stored* x_grad;
  Grad* x_copy;  // null where there is none
  T* sums;       // (segments, 2, n): those of the gradients of weight and bias; null if they are not wanted
};

// With h = (x - mean) inverse and g = grad weight:
// d x = inverse (g - mean(g) - h mean(g h)), the middle term only where the mean was subtracted.
template <class T>
struct RowSums {
  T mean, inverse, of_gradient, of_product;
};

// Returns the sums in every lane of a warp.
template <class Stored, class Grad>
__device__ RowSums<ComputeType<Stored>> sums_of_row(const RowGradientArguments<Stored, Grad>& in, std::int64_t row,
                                                    std::int64_t n, bool aligned) {
  using T = ComputeType<Stored>;
  constexpr int size = pack_size<Stored, Grad>;
  const bool centred = in.mean != nullptr;
  RowSums<T> sums{centred ? in.mean[row] : T(0), in.inverse[row], 0, 0};
  RowGroup<warp_size>::template for_each_pack<size>(n, [&](std::int64_t first, int count) {
    const auto x = load_some<size>(in.x + row * n, first, count, aligned);
    const auto grad = load_some<size>(in.grad + row * n, first, count, aligned);
    for (int k = 0; k < size; ++k) {
      if (k >= count) break;
      const T weight = in.weight == nullptr ? T(1) : static_cast<T>(in.weight[first + k]);
      const T g = static_cast<T>(grad.elements[k]) * weight;
      sums.of_gradient += g;
      sums.of_product += g * ((static_cast<T>(x.elements[k]) - sums.mean) * sums.inverse);
    }
  });
  const T count = static_cast<T>(n);
  sums.of_gradient = centred ? reduce_warp(sums.of_gradient, Plus{}) / count : T(0);
  sums.of_product = reduce_warp(sums.of_product, Plus{}) / count;
  return sums;
}

// Computes the gradients of `size` columns of a tile's rows.
template <int size, class Stored, class Grad>
__device__ void write_columns(const RowGradientArguments<Stored, Grad>& in, const RowSums<ComputeType<Stored>>* of_rows,
                              std::int64_t row, int rows, std::int64_t column, std::int64_t n,
                              ComputeType<Stored>* of_weight, ComputeType<Stored>* of_bias) {
  using T = ComputeType<Stored>;
  T weight[size];
  DDPRUN_UNROLL
  for (int k = 0; k < size; ++k) weight[k] = in.weight == nullptr ? T(1) : static_cast<T>(in.weight[column + k]);
  for (int r = 0; r < rows; ++r) {
    const RowSums<T> sums = of_rows[r];
    const std::int64_t at = (row + r) * n + column;
    const auto x = load_pack<size>(in.x + at, size > 1);
    const auto grad = load_pack<size>(in.grad + at, size > 1);
    Pack<Stored, size> addend{};
    if (in.addend != nullptr) addend = load_pack<size>(in.addend + at, size > 1);
    Pack<Stored, size> result;
    Pack<Grad, size> copy;
    DDPRUN_UNROLL
    for (int k = 0; k < size; ++k) {
      const T slope = static_cast<T>(grad.elements[k]);
      const T h = (static_cast<T>(x.elements[k]) - sums.mean) * sums.inverse;
      T value = sums.inverse * (slope * weight[k] - sums.of_gradient - h * sums.of_product);
      if (in.addend != nullptr) value += static_cast<T>(addend.elements[k]);
      result.elements[k] = Stored(value);
      copy.elements[k] = Grad(value);
      of_weight[k] += slope * h;
      of_bias[k] += slope;
    }
    store_pack(result, in.x_grad + at, size > 1);
    if (in.x_copy != nullptr) store_pack(copy, in.x_copy + at, size > 1);
  }
}

template <int size, class Stored, class Grad>
__global__ void __launch_bounds__(block_threads, 1)
    row_norm_gradient_kernel(RowGradientArguments<Stored, Grad> in, std::int64_t rows, std::int64_t n, bool aligned) {
  using T = ComputeType<Stored>;
  __shared__ RowSums<T> of_rows[tile_rows];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * segment_rows;
  const std::int64_t end = std::min(start + segment_rows, rows);
  T* const sums = in.sums == nullptr ? nullptr : in.sums + 2 * n * blockIdx.x;
  for (std::int64_t row = start; row < end; row += tile_rows) {
    const int count = static_cast<int>(std::min<std::int64_t>(tile_rows, end - row));
    if (warp < count) {
      const RowSums<T> own = sums_of_row(in, row + warp, n, aligned);
      if (threadIdx.x % warp_size == 0) of_rows[warp] = own;
    }
    __syncthreads();
    for (std::int64_t column = std::int64_t{threadIdx.x} * size; column < n; column += block_threads * size) {
      T of_weight[size] = {}, of_bias[size] = {};
      write_columns<size>(in, of_rows, row, count, column, n, of_weight, of_bias);
      if (sums == nullptr) continue;
      // A thread adds only to sums of its own.
      DDPRUN_UNROLL
      for (int k = 0; k < size; ++k) {
        const bool first = row == start;
        sums[column + k] = of_weight[k] + (first ? T(0) : sums[column + k]);
        sums[n + column + k] = of_bias[k] + (first ? T(0) : sums[n + column + k]);
      }
    }
    __syncthreads();  // before the next tile's sums
  }
}

template <class Out>
struct ParameterGradients {
  Out *weight, *bias;  // null if they are not wanted
  bool accumulate_weight, accumulate_bias;
};

// Adds the segments' sums of columns, of weight and bias alike: a block has 32 of the 2 n columns.
template <class T, class Out>
__global__ void __launch_bounds__(block_threads, 1)
    add_segments_kernel(std::int64_t segments, std::int64_t n, const T* sums, ParameterGradients<Out> out) {
  __shared__ double partial[rows_of_tile][lanes_of_tile];
  const int lane = static_cast<int>(threadIdx.x) % lanes_of_tile, row = static_cast<int>(threadIdx.x) / lanes_of_tile;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * lanes_of_tile + lane;
  double total = 0;
  if (column < 2 * n)
    for (std::int64_t i = row; i < segments; i += rows_of_tile) total += static_cast<double>(sums[i * 2 * n + column]);
  partial[row][lane] = total;
  __syncthreads();
  if (row > 0 || column >= 2 * n) return;
  for (int r = 1; r < rows_of_tile; ++r) total += partial[r][lane];
  const bool of_weight = column < n;
  Out* const to = of_weight ? out.weight : out.bias;
  if (to == nullptr) return;
  Out& own = to[of_weight ? column : column - n];
  const bool accumulate = of_weight ? out.accumulate_weight : out.accumulate_bias;
  using C = ComputeType<Out>;
  own = Out(static_cast<C>(total + (accumulate ? static_cast<double>(static_cast<C>(own)) : 0)));
}

template <class Stored, class Grad>
void launch_rows(DeviceContext& device, const kernels::Axis& rows, const RowGradientArguments<Stored, Grad>& in) {
  constexpr int wide = pack_size<Stored, Grad>;
  const auto fits = [&](const auto* memory) { return is_aligned<wide>(memory); };
  const bool aligned = rows.n % wide == 0 && fits(in.x) && fits(in.grad);
  const auto blocks = static_cast<unsigned>(divide_up(rows.outer, segment_rows));
  const auto launch_with = [&]<int size>() {
    launch(device, row_norm_gradient_kernel<size, Stored, Grad>, blocks, block_threads, 0, in, rows.outer, rows.n,
           aligned);
  };
  if (aligned && fits(in.addend) && fits(in.x_grad) && fits(in.x_copy))
    launch_with.template operator()<wide>();
  else
    launch_with.template operator()<1>();
}

}  // namespace

void row_norm_backward(DeviceContext& device, const View& x, const View& grad, const View& addend,
                       const kernels::Axis& rows, bool centred, const View& mean, const View& inverse,
                       const View& weight, const View& x_grad, const View& x_copy, const View& weight_grad,
                       bool accumulate_weight, const View& bias_grad, bool accumulate_bias) {
  if (x_copy.data != nullptr && x_copy.dtype != grad.dtype) refuse_dtype(device, "row_norm_backward", x_copy.dtype);
  visit_norm_types(device, "row_norm_backward", x.dtype, grad.dtype, [&]<class Stored, class Grad>() {
    using T = ComputeType<Stored>;
    const bool sums = weight_grad.data != nullptr || bias_grad.data != nullptr;
    const std::int64_t segments = divide_up(rows.outer, segment_rows);
    const Scratch memory = scratch_for<T>(device, sums ? segments * 2 * rows.n : 0);
    launch_rows<Stored, Grad>(device, rows,
                              {.x = elements<Stored>(x),
                               .grad = elements<Grad>(grad),
                               .addend = elements<Stored>(addend),
                               .weight = elements<Stored>(weight),
                               .mean = centred ? elements<T>(mean) : nullptr,
                               .inverse = elements<T>(inverse),
                               .x_grad = writable<Stored>(x_grad),
                               .x_copy = writable<Grad>(x_copy),
                               .sums = memory.data<T>()});
    if (!sums) return;
    const ParameterGradients<Stored> out{writable<Stored>(weight_grad), writable<Stored>(bias_grad), accumulate_weight,
                                         accumulate_bias};
    launch(device, add_segments_kernel<T, Stored>, static_cast<unsigned>(divide_up(2 * rows.n, lanes_of_tile)),
           block_threads, 0, segments, rows.n, static_cast<const T*>(memory.data<T>()), out);
  });
}

}  // namespace ddprun::cuda
