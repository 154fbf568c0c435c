#pragma once

#include "worker/tensor/cuda/module/attention_tiles.h"

// The backward pass. Probabilities are computed again from the logarithms of the sums: once by tiles of queries, for
// the gradient of the queries, and once by tiles of keys, for those of keys and values. So each gradient is summed by
// one block in a fixed order, and no atomic additions are needed.
namespace ddprun::cuda {

// own: rows of a block, which computes their gradients. other: rows of the tiles that it goes through.
template <class Stored, int Width>
struct BackwardTiles {
  static constexpr bool narrow = Width <= 64;
  static constexpr int strips = (narrow ? 2 : 1) * (sizeof(Stored) == 2 ? 2 : 1);
  static constexpr int own = strips * strip_rows<Stored>;
  static constexpr int other = sizeof(Stored) == 2 ? 32 : (narrow ? 128 : 64) / static_cast<int>(sizeof(Stored));
  // The columns of a strip are divided among so many warps where it has two gradients: one has too few registers.
  static constexpr int splits = !narrow && sizeof(ComputeType<Stored>) == 4 ? 2 : 1;
};

template <class Stored>
struct BackwardInputs {
  using T = ComputeType<Stored>;
  AttentionSizes sizes;
  T scale;
  HeadRows<const Stored> query, key, value, grad;
  const Stored* mask;
  const T* log_sum;
};

// Tells which keys of a tile the queries of a tile see.
class TileVisibility {
 public:
  __device__ __forceinline__ TileVisibility(const AttentionSizes& sizes, std::int64_t first_query,
                                            std::int64_t first_key)
      : queries_(bounded(sizes.queries - first_query)),
        keys_(bounded(sizes.keys - first_key)),
        ahead_(sizes.causal ? bounded(first_query + sizes.keys - sizes.queries - first_key) : bound) {}
  __device__ __forceinline__ bool operator()(int query, int key) const {
    return query < queries_ && key < keys_ && key <= query + ahead_;
  }

 private:
  static constexpr int bound = 1 << 20;  // more than a tile has
  __device__ __forceinline__ static int bounded(std::int64_t value) {
    return static_cast<int>(value < -bound ? -bound : value > bound ? bound : value);
  }

  int queries_, keys_;
  int ahead_;  // the distance from a query's number to the last key that it sees
};

// The probabilities of a tile, given products of queries and keys.
template <class Stored>
struct TileProbabilities {
  using T = ComputeType<Stored>;
  __device__ __forceinline__ TileProbabilities(const BackwardInputs<Stored>& in, std::int64_t first_query,
                                               std::int64_t first_key)
      : visible(in.sizes, first_query, first_key),
        scale(in.scale),
        mask(in.mask == nullptr ? nullptr : in.mask + first_query * in.sizes.keys + first_key),
        mask_stride(in.sizes.keys) {}

  __device__ __forceinline__ T operator()(int query, int key, T product, T log_sum) const {
    if (!visible(query, key)) return T(0);
    T score = product * scale;
    if (mask != nullptr) score += static_cast<T>(mask[query * mask_stride + key]);
    return functor::softmax_exp(score - log_sum);
  }

  TileVisibility visible;
  T scale;
  const Stored* mask;
  std::int64_t mask_stride;
};

// Loads a query's logarithm of its sum; infinite where it is missing or sees nothing, which makes all probabilities 0.
template <class Stored>
__device__ __forceinline__ ComputeType<Stored> log_sum_of(const BackwardInputs<Stored>& in, const BlockPosition& at,
                                                          std::int64_t query) {
  using T = ComputeType<Stored>;
  const T log_sum = query < in.sizes.queries ? in.log_sum[at.number * in.sizes.queries + query] : minus_infinity<T>();
  return log_sum == minus_infinity<T>() ? -log_sum : log_sum;
}

// Writes a strip of a gradient to shared memory, from where it is stored by rows. accumulate: added to what is there.
template <int Width, int Columns, class Stored, class Layout>
__device__ __forceinline__ void store_gradient(const Layout& layout, Strip<Stored, Columns>& gradient, int first_column,
                                               const HeadRows<Stored>& result, const BlockPosition& at,
                                               std::int64_t first, std::int64_t rows, int width, bool accumulate,
                                               Stored* staging) {
  using T = ComputeType<Stored>;
  const Stored* before = result.of(at.batch, at.head) + first * result.row_stride;
  for_each_element(layout, gradient, [&](int row, int strip_column, T element) {
    const int column = first_column + strip_column;
    if (accumulate && first + row < rows && column < width)
      element += static_cast<T>(before[row * result.row_stride + column]);
    staging[row * tile_stride<Stored, Width> + column] = static_cast<Stored>(element);
  });
  __syncwarp();
  store_strip<Width, Columns>(staging, first_column, result, at, first, rows, width);
}

// Goes by tiles of queries. grad_dot_out, for each query, is given or computed here and stored.
template <class Stored, int Width>
__global__ void __launch_bounds__(warp_size* BackwardTiles<Stored, Width>::strips, 2)
    query_gradient_kernel(BackwardInputs<Stored> in, bool is_given, ComputeType<Stored>* grad_dot_out,
                          HeadRows<Stored> query_grad, bool accumulate) {
  using T = ComputeType<Stored>;
  using Tiles = BackwardTiles<Stored, Width>;
  using Scores = ScoreStrip<Stored, Tiles::other>;
  constexpr int rows = strip_rows<Stored>, stride = tile_stride<Stored, Width>;
  alignas(32) __shared__ Stored queries[Tiles::own * stride];
  alignas(32) __shared__ Stored grads[Tiles::own * stride];
  alignas(32) __shared__ Stored keys[Tiles::other * stride];
  alignas(32) __shared__ Stored values[Tiles::other * stride];
  alignas(32) __shared__ T scores[Tiles::strips * Scores::size];
  __shared__ T log_sums[Tiles::own];
  __shared__ T dots[Tiles::own];

  const AttentionSizes& sizes = in.sizes;
  BlockPosition at(sizes);
  // Queries at the end see the most keys: they start first.
  at.tile = (sizes.queries - 1) / Tiles::own - at.tile;
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_of_warp();
  const std::int64_t tile_query = at.tile * Tiles::own, first_query = tile_query + warp * rows;
  const std::int64_t numbers = at.number * sizes.queries + first_query;  // the index of its log_sum and grad_dot_out
  Stored* const query = queries + warp * rows * stride;
  Stored* const grad = grads + warp * rows * stride;
  T* const log_sum = log_sums + warp * rows;
  T* const dot = dots + warp * rows;
  const Scores strip(scores + warp * Scores::size);
  const StripLayout<Stored> layout(strip.scores);

  load_strip<Width>(in.query, at, first_query, sizes.queries, sizes.width, query);
  load_strip<Width>(in.grad, at, first_query, sizes.queries, sizes.value_width, grad);
  if (lane < rows) {
    log_sum[lane] = log_sum_of(in, at, first_query + lane);
    dot[lane] = is_given && first_query + lane < sizes.queries ? grad_dot_out[numbers + lane] : T(0);
  }

  const std::int64_t last = tile_query + Tiles::own < sizes.queries ? tile_query + Tiles::own : sizes.queries;
  const std::int64_t visible = sizes.visible(last - 1);
  using Product = Strip<Stored, Tiles::other>;
  // Calls visit(probabilities, products of queries and keys, gradients of the probabilities) for each tile of keys.
  const auto for_each_tile = [&](auto visit) {
    for (std::int64_t first_key = 0; first_key < visible; first_key += Tiles::other) {
      __syncthreads();
      load_tile<Tiles::other, Width>(in.key, at, first_key, sizes.keys, sizes.width, keys);
      load_tile<Tiles::other, Width>(in.value, at, first_key, sizes.keys, sizes.value_width, values);
      __syncthreads();
      Product product, product_grad;
      product.template add_product_transposed<Width>(query, stride, keys, stride);
      product_grad.template add_product_transposed<Width>(grad, stride, values, stride);
      visit(TileProbabilities<Stored>(in, first_query, first_key), product, product_grad);
    }
  };

  if (!is_given) {
    Product sums;
    for_each_tile([&](const TileProbabilities<Stored>& shares, Product& product, Product& share_grads) {
      DDPRUN_UNROLL
      for (int e = 0; e < Product::lane_elements; ++e) {
        const int row = Product::row(layout, e), column = Product::column(layout, e);
        sums[e] += shares(row, column, product[e], log_sum[row]) * share_grads[e];
      }
    });
    for_each_element(layout, sums,
                     [&](int row, int column, T element) { strip.scores[row * Scores::stride + column] = element; });
    __syncwarp();
    DDPRUN_UNROLL
    for (int row = lane / 4; row < rows; row += 8) {
      T total = 0;
      for (int column = lane % 4; column < Tiles::other; column += 4)
        total += strip.scores[row * Scores::stride + column];
      total = sum_of_four(total);
      if (lane % 4 != 0) continue;
      dot[row] = total;
      if (first_query + row < sizes.queries) grad_dot_out[numbers + row] = total;
    }
  }

  Strip<Stored, Width> result;
  for_each_tile([&](const TileProbabilities<Stored>& shares, Product& product, Product& share_grads) {
    for_each_element(layout, product, share_grads, [&](int row, int column, T score, T share_grad) {
      const T share = shares(row, column, score, log_sum[row]);
      strip.operand[row * Scores::operand_stride + column] =
          static_cast<Stored>(in.scale * (share * (share_grad - dot[row])));
    });
    __syncwarp();
    result.template add_product<Tiles::other>(strip.operand, Scores::operand_stride, keys, stride);
  });
  __syncwarp();
  store_gradient<Width, Width>(layout, result, 0, query_grad, at, first_query, sizes.queries, sizes.width, accumulate,
                               query);
}

// Goes by tiles of keys, after the above.
template <class Stored, int Width>
__global__ void __launch_bounds__(warp_size* BackwardTiles<Stored, Width>::strips* BackwardTiles<Stored, Width>::splits,
                                  2)
    key_gradient_kernel(BackwardInputs<Stored> in, const ComputeType<Stored>* grad_dot_out, HeadRows<Stored> key_grad,
                        HeadRows<Stored> value_grad, bool accumulate) {
  using T = ComputeType<Stored>;
  using Tiles = BackwardTiles<Stored, Width>;
  using Scores = ScoreStrip<Stored, Tiles::other>;
  constexpr int rows = strip_rows<Stored>, stride = tile_stride<Stored, Width>;
  constexpr int columns = Width / Tiles::splits, others = Tiles::other / Tiles::splits;  // those of a warp
  alignas(32) __shared__ Stored keys[Tiles::own * stride];
  alignas(32) __shared__ Stored values[Tiles::own * stride];
  alignas(32) __shared__ Stored queries[Tiles::other * stride];
  alignas(32) __shared__ Stored grads[Tiles::other * stride];
  alignas(32) __shared__ T scores[Tiles::strips * Scores::size];
  __shared__ T log_sums[Tiles::other];
  __shared__ T dots[Tiles::other];

  // Keys at the beginning are seen by the most queries: they start first.
  const AttentionSizes& sizes = in.sizes;
  const BlockPosition at(sizes);
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int number = warp / Tiles::splits, split = warp % Tiles::splits;
  const int first_column = split * columns, first_other = split * others;
  const std::int64_t tile_key = at.tile * Tiles::own, first_key = tile_key + number * rows;
  Stored* const key = keys + number * rows * stride;
  Stored* const value = values + number * rows * stride;
  const Scores strip(scores + number * Scores::size);
  const StripLayout<Stored> layout(scores + warp * Scores::size / Tiles::splits);

  if (split == 0) load_strip<Width>(in.key, at, first_key, sizes.keys, sizes.width, key);
  if (split == Tiles::splits - 1) load_strip<Width>(in.value, at, first_key, sizes.keys, sizes.value_width, value);
  const auto synchronize_strip = [] {
    if constexpr (Tiles::splits == 1)
      __syncwarp();
    else
      __syncthreads();
  };
  Strip<Stored, columns> key_sum, value_sum;
  const std::int64_t seen_from = sizes.first_query_of(tile_key);
  for (std::int64_t first_query = seen_from / Tiles::other * Tiles::other; first_query < sizes.queries;
       first_query += Tiles::other) {
    __syncthreads();
    load_tile<Tiles::other, Width>(in.query, at, first_query, sizes.queries, sizes.width, queries);
    load_tile<Tiles::other, Width>(in.grad, at, first_query, sizes.queries, sizes.value_width, grads);
    for (int i = static_cast<int>(threadIdx.x); i < Tiles::other; i += static_cast<int>(blockDim.x)) {
      const std::int64_t query = first_query + i;
      log_sums[i] = log_sum_of(in, at, query);
      dots[i] = query < sizes.queries ? grad_dot_out[at.number * sizes.queries + query] : T(0);
    }
    __syncthreads();
    const TileProbabilities<Stored> shares(in, first_query, first_key);
    Strip<Stored, others> product, product_grad;
    product.template add_product_transposed<Width>(key, stride, queries + first_other * stride, stride);
    product_grad.template add_product_transposed<Width>(value, stride, grads + first_other * stride, stride);
    for_each_element(layout, product, [&](int row, int strip_column, T& element) {
      const int column = first_other + strip_column;
      element = shares(column, row, element, log_sums[column]);
      strip.operand[row * Scores::operand_stride + column] = static_cast<Stored>(element);
    });
    synchronize_strip();
    value_sum.template add_product<Tiles::other>(strip.operand, Scores::operand_stride, grads + first_column, stride);
    synchronize_strip();
    for_each_element(layout, product, product_grad, [&](int row, int strip_column, T share, T share_grad) {
      const int column = first_other + strip_column;
      strip.operand[row * Scores::operand_stride + column] =
          static_cast<Stored>(in.scale * (share * (share_grad - dots[column])));
    });
    synchronize_strip();
    key_sum.template add_product<Tiles::other>(strip.operand, Scores::operand_stride, queries + first_column, stride);
  }
  synchronize_strip();
  store_gradient<Width, columns>(layout, key_sum, first_column, key_grad, at, first_key, sizes.keys, sizes.width,
                                 accumulate, key);
  store_gradient<Width, columns>(layout, value_sum, first_column, value_grad, at, first_key, sizes.keys,
                                 sizes.value_width, accumulate, value);
}

}  // namespace ddprun::cuda
