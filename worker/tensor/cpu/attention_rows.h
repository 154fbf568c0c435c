// The row-by-row steps of attention by tiles of queries, in either way of multiplying. Everything here has internal
// linkage: each including file is compiled with its own options.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/rounding.h"
#include "worker/tensor/cpu/lanes.h"
#include "worker/tensor/cpu/panel_product.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/functors/math.h"
#include "worker/tensor/kernels.h"

namespace ddprun::cpu {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionOptions;
using kernels::AttentionResult;
using kernels::AttentionSums;

constexpr std::int64_t tile_rows = 32;

struct Sizes {
  Sizes(const Tensor& query, const Tensor& key, const Tensor& value)
      : batch(query.size(0)),
        heads(query.size(1)),
        queries(query.size(2)),
        keys(key.size(2)),
        width(query.size(3)),
        value_width(value.size(3)) {}
  std::int64_t batch, heads, queries, keys, width, value_width;

  // Returns the number of keys that query i sees.
  std::int64_t visible(std::int64_t i, bool causal) const {
    return causal ? std::clamp<std::int64_t>(i + 1 + keys - queries, 0, keys) : keys;
  }
};

// Queries [first, last) of a head, and the number of keys that at least one of them sees.
struct Tile {
  std::int64_t first, last, visible;
  std::int64_t rows() const { return last - first; }
};

// Goes from the last tile to the first: the one that sees all keys comes first.
template <class Visit>
void for_each_tile(const Sizes& sizes, bool causal, Visit visit) {
  for (std::int64_t tile = divide_up(sizes.queries, tile_rows); tile-- > 0;) {
    const std::int64_t first = tile * tile_rows, last = std::min(first + tile_rows, sizes.queries);
    visit(Tile{first, last, sizes.visible(last - 1, causal)});
  }
}

// The rows of one head of a (batch, heads, rows, width) tensor.
template <class Stored>
struct Rows {
  Rows(const Tensor& tensor, std::int64_t batch, std::int64_t head)
      : data(static_cast<Stored*>(const_cast<void*>(tensor.raw())) + batch * tensor.strides()[0] +
             head * tensor.strides()[1]),
        stride(std::max(tensor.strides()[2], tensor.size(3))) {}  // a single row may have any stride
  Stored* at(std::int64_t row) const { return data + row * stride; }
  Stored* data;
  std::int64_t stride;
};

template <class Stored, class T>
DDPRUN_VECTORIZED void load_row(std::int64_t columns, std::int64_t padded, const Stored* from, T* to) {
  for (std::int64_t j = 0; j < columns; ++j) to[j] = static_cast<T>(from[j]);
  for (std::int64_t j = columns; j < padded; ++j) to[j] = 0;
}
template <class Stored, class T>
DDPRUN_VECTORIZED void store_row(std::int64_t columns, T factor, const T* from, Stored* to) {
  for (std::int64_t j = 0; j < columns; ++j) to[j] = static_cast<Stored>(from[j] * factor);
}

template <class T>
const T* mask_row(const Tensor& mask, const Sizes& sizes, std::int64_t query) {
  return mask.defined() ? mask.data<T>() + query * sizes.keys : nullptr;
}

// scores[0, visible) become scale * score + mask. Those to the end, which is that of a whole panel, repeat the first:
// the loops behind this one have no remainder, and meet no number that is slower than others.
template <class T>
DDPRUN_VECTORIZED void scale_row(std::int64_t visible, std::int64_t end, T scale, const T* mask, T* scores) {
  if (mask == nullptr) {
    for (std::int64_t j = 0; j < end; ++j) scores[j] *= scale;
  } else {
    for (std::int64_t j = 0; j < visible; ++j) scores[j] = scores[j] * scale + mask[j];
  }
  const T first = visible > 0 ? scores[0] : -std::numeric_limits<T>::infinity();
  for (std::int64_t j = visible; j < end; ++j) scores[j] = first;
}

// Returns the greatest of a row of whole panels; one that is no number may be passed over.
template <class T>
[[gnu::always_inline]] inline T highest_of(std::int64_t end, const T* scores) {
  using Vector [[gnu::vector_size(64)]] = T;
  Vector highest = -std::numeric_limits<T>::infinity() - Vector{};
  for (std::int64_t j = 0; j < end; j += panel_width<T>) {
    Vector next;
    std::memcpy(&next, scores + j, sizeof next);
    highest = next > highest ? next : highest;
  }
  T result = highest[0];
  for (std::int64_t lane = 1; lane < panel_width<T>; ++lane) result = highest[lane] > result ? highest[lane] : result;
  return result;
}

// Turns scores into exponentials, in place, zero beyond the visible keys: the probabilities times their sum.
template <class T>
struct Exponentials {
  T highest;  // the highest score; minus infinity if nothing is visible
  T total;
};
template <class T>
DDPRUN_VECTORIZED Exponentials<T> exponentials(std::int64_t visible, std::int64_t end, T* scores) {
  const T highest = highest_of(end, scores);
  if (highest == -std::numeric_limits<T>::infinity()) {
    for (std::int64_t j = 0; j < end; ++j) scores[j] = 0;
    return {highest, T(1)};
  }
  for (std::int64_t j = 0; j < end; ++j) scores[j] = functor::softmax_exp(scores[j] - highest);
  for (std::int64_t j = visible; j < end; ++j) scores[j] = 0;
  const T total = lane_sum<T>(
      end, [scores](std::int64_t j) __attribute__((always_inline)) { return scores[j]; });
  return {highest, total};
}

// Turns each row's highest score into the logarithm of the sum, and its total into an exponential's share in it.
template <class T>
DDPRUN_VECTORIZED void finish_sums(std::int64_t rows, T* highest_to_log_sum, T* total_to_share) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T highest = highest_to_log_sum[i], total = total_to_share[i];
    highest_to_log_sum[i] = highest + functor::log(total);
    total_to_share[i] = highest == -std::numeric_limits<T>::infinity() ? T(0) : T(1) / total;
  }
}

// Turns a tile's scores into exponentials; finds each query's logarithm of the sum and an exponential's share in it.
template <class T, class Scores>
void exponentials_of_tile(const Sizes& sizes, const Tile& tile, const Tensor& mask, const AttentionOptions& options,
                          const Scores& scores, T* log_sum, T* shares) {
  for (std::int64_t i = 0; i < tile.rows(); ++i) {
    const std::int64_t at = tile.first + i, visible = sizes.visible(at, options.causal);
    const std::int64_t end = padded_columns<T>(tile.visible);
    scale_row<T>(visible, end, static_cast<T>(options.scale), mask_row<T>(mask, sizes, at), scores.at(i));
    const auto found = exponentials(visible, end, scores.at(i));
    log_sum[at] = found.highest;
    shares[i] = found.total;
  }
  finish_sums(tile.rows(), log_sum + tile.first, shares);
}

// Turns scores into the probabilities of the forward pass, given the logarithm of the sum.
template <class T>
DDPRUN_VECTORIZED void restore_probabilities(std::int64_t visible, std::int64_t end, T log_sum, T* scores) {
  const bool sees_nothing = log_sum == -std::numeric_limits<T>::infinity();
  for (std::int64_t j = 0; j < end; ++j) scores[j] = sees_nothing ? T(0) : functor::softmax_exp(scores[j] - log_sum);
  for (std::int64_t j = visible; j < end; ++j) scores[j] = 0;
}

// sum(p d p)
template <class T>
DDPRUN_VECTORIZED T product_sum(std::int64_t end, const T* p, const T* gradient) {
  return lane_sum<T>(
      end, [ p, gradient ](std::int64_t j) __attribute__((always_inline)) { return p[j] * gradient[j]; });
}

// d score = scale * p (d p - total), with the sum over all keys as total
template <class T>
DDPRUN_VECTORIZED void score_gradient(std::int64_t end, T scale, T total, const T* p, T* gradient) {
  for (std::int64_t j = 0; j < end; ++j) gradient[j] = scale * (p[j] * (gradient[j] - total));
}

// The sums of each query.
template <class T>
struct HeadSums {
  const T *log_sum, *grad_dot_out;  // grad_dot_out: null where the keys are all there are
};

template <class Stored>
struct HeadGradients {
  Rows<Stored> query, key, value;
  bool accumulate;
};

}  // namespace
}  // namespace ddprun::cpu
