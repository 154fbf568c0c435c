#pragma once

#include "worker/tensor/cuda/module/attention_tiles.h"

// The forward pass: Milakov and Gimelshein's online softmax over tiles of keys, as in FlashAttention (Dao et al.,
// 2022).
namespace ddprun::cuda {

// Sizes are chosen so that all tiles fit into the 48 KiB of shared memory that every architecture has.
template <class Stored, int Width>
struct ForwardTiles {
  static constexpr bool narrow = Width <= 64;
  static constexpr int warps = narrow || sizeof(Stored) == 2 ? 4 : 2;
  static constexpr int queries = warps * strip_rows<Stored>;
  static constexpr int keys = (narrow ? 128 : 64) / static_cast<int>(sizeof(Stored));
};

// One of the strip's rows as a lane sees it: the highest score so far, and the sum of exponentials relative to it.
template <class T>
struct RunningSoftmax {
  T highest = minus_infinity<T>();
  T total = 0;
};

// A strip's scores against a tile of keys become exponentials, relative to the highest score so far of their row.
// rescale: the factor by which what was summed before has to shrink.
template <class Stored, int Keys, class T>
__device__ __forceinline__ void exponentials(const AttentionSizes& sizes, T scale, const Stored* mask,
                                             std::int64_t first_query, std::int64_t first_key,
                                             const ScoreStrip<Stored, Keys>& strip, RunningSoftmax<T>* rows,
                                             T* rescale) {
  using Scores = ScoreStrip<Stored, Keys>;
  const int first_column = lane_of_warp() % 4;
  DDPRUN_UNROLL
  for (int n = 0; n < strip_rows<Stored> / 8; ++n) {
    const int row = 8 * n + lane_of_warp() / 4;
    const std::int64_t query = first_query + row, visible = sizes.visible(query) - first_key;
    T values[Keys / 4];
    T highest = rows[n].highest;
    DDPRUN_UNROLL
    for (int i = 0; i < Keys / 4; ++i) {
      const int column = first_column + 4 * i;
      T score = minus_infinity<T>();
      if (column < visible) {
        score = strip.scores[row * Scores::stride + column] * scale;
        if (mask != nullptr) score += static_cast<T>(mask[query * sizes.keys + first_key + column]);
      }
      highest = score > highest ? score : highest;
      values[i] = score;
    }
    highest = highest_of_four(highest);
    // Where nothing was visible so far, no difference with the highest score is a number.
    const bool sees_nothing = highest == minus_infinity<T>();
    T total = 0;
    DDPRUN_UNROLL
    for (int i = 0; i < Keys / 4; ++i) {
      values[i] = sees_nothing ? T(0) : functor::softmax_exp(values[i] - highest);
      total += values[i];
    }
    const T factor = sees_nothing ? T(0) : functor::softmax_exp(rows[n].highest - highest);
    rows[n] = {highest, rows[n].total * factor + sum_of_four(total)};
    if (first_column == 0) rescale[row] = factor;
    __syncwarp();  // all lanes have read the scores of the row: shuffles do not order memory
    DDPRUN_UNROLL
    for (int i = 0; i < Keys / 4; ++i)
      strip.operand[row * Scores::operand_stride + first_column + 4 * i] = static_cast<Stored>(values[i]);
  }
}

// Writes the logarithms of the sums, and the factor by which each row's sum of values has to be scaled.
template <class Stored, class T>
__device__ __forceinline__ void finish_rows(const AttentionSizes& sizes, std::int64_t first_query,
                                            const RunningSoftmax<T>* rows, T* log_sum, T* share) {
  DDPRUN_UNROLL
  for (int n = 0; n < strip_rows<Stored> / 8; ++n) {
    const int row = 8 * n + lane_of_warp() / 4;
    if (lane_of_warp() % 4 != 0) continue;
    const bool sees_nothing = rows[n].highest == minus_infinity<T>();
    share[row] = sees_nothing ? T(0) : T(1) / rows[n].total;
    if (first_query + row < sizes.queries)
      log_sum[first_query + row] = sees_nothing ? rows[n].highest : rows[n].highest + functor::log(rows[n].total);
  }
}

template <class Stored, int Width>
__global__ void __launch_bounds__(warp_size* ForwardTiles<Stored, Width>::warps)
    attention_kernel(AttentionSizes sizes, ComputeType<Stored> scale, HeadRows<const Stored> query,
                     HeadRows<const Stored> key, HeadRows<const Stored> value, const Stored* mask, HeadRows<Stored> out,
                     ComputeType<Stored>* log_sum) {
  using T = ComputeType<Stored>;
  using Tiles = ForwardTiles<Stored, Width>;
  using Scores = ScoreStrip<Stored, Tiles::keys>;
  constexpr int rows = strip_rows<Stored>, stride = tile_stride<Stored, Width>;
  alignas(32) __shared__ Stored queries[Tiles::queries * stride];
  alignas(32) __shared__ Stored keys[Tiles::keys * stride];
  alignas(32) __shared__ Stored values[Tiles::keys * stride];
  alignas(32) __shared__ T scores[Tiles::warps * Scores::size];
  __shared__ T factors[Tiles::queries];

  BlockPosition at(sizes);
  // Queries at the end see the most keys: they start first.
  at.tile = (sizes.queries - 1) / Tiles::queries - at.tile;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t tile_query = at.tile * Tiles::queries, first_query = tile_query + warp * rows;
  Stored* const own = queries + warp * rows * stride;
  T* const factor = factors + warp * rows;
  const Scores strip(scores + warp * Scores::size);
  const StripLayout<Stored> layout(strip.scores);

  load_strip<Width>(query, at, first_query, sizes.queries, sizes.width, own);
  Strip<Stored, Width> result;
  RunningSoftmax<T> softmax[rows / 8];
  const std::int64_t last = tile_query + Tiles::queries < sizes.queries ? tile_query + Tiles::queries : sizes.queries;
  const std::int64_t visible = sizes.visible(last - 1);
  for (std::int64_t first_key = 0; first_key < visible; first_key += Tiles::keys) {
    __syncthreads();
    load_tile<Tiles::keys, Width>(key, at, first_key, sizes.keys, sizes.width, keys);
    load_tile<Tiles::keys, Width>(value, at, first_key, sizes.keys, sizes.value_width, values);
    __syncthreads();
    Strip<Stored, Tiles::keys> product;
    product.template add_product_transposed<Width>(own, stride, keys, stride);
    for_each_element(layout, product,
                     [&](int row, int column, T element) { strip.scores[row * Scores::stride + column] = element; });
    __syncwarp();
    exponentials(sizes, scale, mask, first_query, first_key, strip, softmax, factor);
    __syncwarp();
    for_each_element(layout, result, [&](int row, int, T& element) { element *= factor[row]; });
    result.template add_product<Tiles::keys>(strip.operand, Scores::operand_stride, values, stride);
  }
  __syncwarp();
  finish_rows<Stored>(sizes, first_query, softmax, log_sum + at.number * sizes.queries, factor);
  __syncwarp();
  for_each_element(layout, result, [&](int row, int column, T element) {
    own[row * stride + column] = static_cast<Stored>(element * factor[row]);
  });
  __syncwarp();
  store_strip<Width, Width>(own, 0, out, at, first_query, sizes.queries, sizes.value_width);
}

}  // namespace ddprun::cuda
