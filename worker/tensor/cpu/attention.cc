#include <algorithm>
#include <cmath>
#include <limits>

#include "ddprun/worker/tensor/cpu/lanes.h"
#include "ddprun/worker/tensor/cpu/matrix_product.h"
#include "ddprun/worker/tensor/cpu/table.h"
#include "ddprun/worker/tensor/cpu/vectorize.h"
#include "ddprun/worker/tensor/cpu/visit_dtype.h"
#include "ddprun/worker/tensor/functors/math.h"

// Attention by tiles of queries of one head: the scores of a tile are a scratch that stays in the cache, and keys that
// causality hides from the whole tile are left out. What is saved for the backward pass is the logarithm of each
// query's sum (Dao et al., "FlashAttention", 2022).
namespace ddprun::cpu {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionOptions;
using kernels::AttentionResult;
using kernels::AttentionSums;

constexpr std::int64_t tile_rows = 64;

struct Sizes {
  Sizes(const Tensor& query, const Tensor& key, const Tensor& value)
      : batch(query.size(0)),
        heads(query.size(1)),
        queries(query.size(2)),
        keys(key.size(2)),
        width(query.size(3)),
        value_width(value.size(3)) {}
  std::int64_t batch, heads, queries, keys, width, value_width;

  // How many keys query i sees.
  std::int64_t visible(std::int64_t i, bool causal) const {
    return causal ? std::clamp<std::int64_t>(i + 1 + keys - queries, 0, keys) : keys;
  }
};

// Queries [first, last) of a head, and how many keys at least one of them sees.
struct Tile {
  std::int64_t first, last, visible;
  std::int64_t rows() const { return last - first; }
};

// From the last tile to the first: the one that sees all keys comes first.
template <class Visit>
void for_each_tile(const Sizes& sizes, bool causal, Visit visit) {
  for (std::int64_t tile = (sizes.queries + tile_rows - 1) / tile_rows; tile-- > 0;) {
    const std::int64_t first = tile * tile_rows, last = std::min(first + tile_rows, sizes.queries);
    visit(Tile{first, last, sizes.visible(last - 1, causal)});
  }
}

// The rows of one head of a (batch, heads, rows, width) tensor.
template <class T>
struct Rows {
  Rows(const Tensor& tensor, std::int64_t batch, std::int64_t head)
      : data(static_cast<T*>(const_cast<void*>(tensor.raw())) + batch * tensor.strides()[0] +
             head * tensor.strides()[1]),
        stride(std::max(tensor.strides()[2], tensor.size(3))) {}  // a single row may have any stride
  T* at(std::int64_t row) const { return data + row * stride; }
  T* data;
  std::int64_t stride;
};

template <class T>
const T* mask_row(const Tensor& mask, const Sizes& sizes, std::int64_t query) {
  return mask.defined() ? mask.data<T>() + query * sizes.keys : nullptr;
}

// scores[0, visible) become scale * score + mask; the rest becomes minus infinity where it is read at all.
template <class T>
DDPRUN_VECTORIZED void scale_row(std::int64_t visible, T scale, const T* mask, T* scores) {
  if (mask == nullptr) {
    for (std::int64_t j = 0; j < visible; ++j) scores[j] *= scale;
  } else {
    for (std::int64_t j = 0; j < visible; ++j) scores[j] = scores[j] * scale + mask[j];
  }
}

// Scores to probabilities, in place, zero beyond the visible keys; returns the logarithm of the sum.
template <class T>
DDPRUN_VECTORIZED T softmax_visible(std::int64_t visible, std::int64_t keys, T* scores) {
  T highest = -std::numeric_limits<T>::infinity();
  for (std::int64_t j = 0; j < visible; ++j) highest = scores[j] > highest ? scores[j] : highest;
  for (std::int64_t j = visible; j < keys; ++j) scores[j] = 0;
  if (highest == -std::numeric_limits<T>::infinity()) {  // nothing to see
    for (std::int64_t j = 0; j < visible; ++j) scores[j] = 0;
    return highest;
  }
  for (std::int64_t j = 0; j < visible; ++j) scores[j] = functor::exp(scores[j] - highest);
  const T total = lane_sum<T>(
      visible, [scores](std::int64_t j) __attribute__((always_inline)) { return scores[j]; });
  const T share = T(1) / total;
  for (std::int64_t j = 0; j < visible; ++j) scores[j] *= share;
  return highest + functor::log(total);
}

// Scores to the probabilities of the forward pass, given the logarithm of the sum.
template <class T>
DDPRUN_VECTORIZED void restore_probabilities(std::int64_t visible, std::int64_t keys, T log_sum, T* scores) {
  const bool sees_nothing = log_sum == -std::numeric_limits<T>::infinity();
  for (std::int64_t j = 0; j < visible; ++j) scores[j] = sees_nothing ? T(0) : functor::exp(scores[j] - log_sum);
  for (std::int64_t j = visible; j < keys; ++j) scores[j] = 0;
}

// sum(p d p)
template <class T>
DDPRUN_VECTORIZED T product_sum(std::int64_t keys, const T* p, const T* gradient) {
  return lane_sum<T>(
      keys, [ p, gradient ](std::int64_t j) __attribute__((always_inline)) { return p[j] * gradient[j]; });
}

// d score = scale * p (d p - total), with the sum over all keys as total
template <class T>
DDPRUN_VECTORIZED void score_gradient(std::int64_t keys, T scale, T total, const T* p, T* gradient) {
  for (std::int64_t j = 0; j < keys; ++j) gradient[j] = scale * (p[j] * (gradient[j] - total));
}

// One head. scores: a scratch of a tile's rows times all keys.
template <class T>
void attend(const Sizes& sizes, Rows<T> query, Rows<T> key, Rows<T> value, const Tensor& mask,
            const AttentionOptions& options, T* scores, Rows<T> out, T* log_sum) {
  for_each_tile(sizes, options.causal, [&](const Tile& tile) {
    const std::int64_t seen = tile.visible;
    multiply_tile({tile.rows(), seen, sizes.width, query.stride, key.stride, seen, {.transpose_b = true}},
                  query.at(tile.first), key.data, scores);
    for (std::int64_t i = tile.first; i < tile.last; ++i) {
      T* row = scores + (i - tile.first) * seen;
      const std::int64_t visible = sizes.visible(i, options.causal);
      scale_row<T>(visible, static_cast<T>(options.scale), mask_row<T>(mask, sizes, i), row);
      log_sum[i] = softmax_visible(visible, seen, row);
    }
    multiply_tile({tile.rows(), sizes.value_width, seen, seen, value.stride, out.stride, {}}, scores, value.data,
                  out.at(tile.first));
  });
}

void attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
               const AttentionOptions& options, const AttentionResult& result) {
  if (is_16_bit(query)) {
    Tensor wide = Tensor::empty(result.out.shape(), DType::float32, query.device()), out = result.out;
    attention(widened(query), widened(key), widened(value), widened(mask), options, {wide, result.log_sum});
    return kernels::copy(wide, out);
  }
  const Sizes sizes(query, key, value);
  Tensor scores = Tensor::empty({tile_rows, sizes.keys}, query.dtype(), query.device()), log_sums = result.log_sum;
  visit_wide(query.dtype(), [&]<class T>() {
    T* log_sum = log_sums.data<T>();
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      for (std::int64_t h = 0; h < sizes.heads; ++h, log_sum += sizes.queries)
        attend<T>(sizes, {query, b, h}, {key, b, h}, {value, b, h}, mask, options, scores.data<T>(), {result.out, b, h},
                  log_sum);
  });
}

// The scratches of a tile: probabilities, and the gradient of the scores.
template <class T>
struct Scratch {
  T *probabilities, *gradient;
};

// Of each query.
template <class T>
struct HeadSums {
  const T *log_sum, *grad_dot_out;  // grad_dot_out: null where the keys are all there are
};

template <class T>
struct HeadGradients {
  Rows<T> query, key, value;
  bool accumulate;
};

// One head. The first tile sees all keys and writes their gradients, the others add to them.
template <class T>
void attend_backward(const Sizes& sizes, Rows<T> query, Rows<T> key, Rows<T> value, Rows<T> grad, const Tensor& mask,
                     const AttentionOptions& options, HeadSums<T> sums, Scratch<T> scratch, HeadGradients<T> out) {
  const auto [p, gradient] = scratch;
  bool accumulate = out.accumulate;
  for_each_tile(sizes, options.causal, [&](const Tile& tile) {
    const std::int64_t seen = tile.visible, rows = tile.rows();
    const T *q = query.at(tile.first), *g = grad.at(tile.first);
    multiply_tile({rows, seen, sizes.width, query.stride, key.stride, seen, {.transpose_b = true}}, q, key.data, p);
    multiply_tile({rows, seen, sizes.value_width, grad.stride, value.stride, seen, {.transpose_b = true}}, g,
                  value.data, gradient);
    for (std::int64_t i = tile.first; i < tile.last; ++i) {
      const std::int64_t at = (i - tile.first) * seen, visible = sizes.visible(i, options.causal);
      scale_row<T>(visible, static_cast<T>(options.scale), mask_row<T>(mask, sizes, i), p + at);
      restore_probabilities(visible, seen, sums.log_sum[i], p + at);
      const T total = sums.grad_dot_out ? sums.grad_dot_out[i] : product_sum(seen, p + at, gradient + at);
      score_gradient<T>(seen, static_cast<T>(options.scale), total, p + at, gradient + at);
    }
    multiply_tile({seen,
                   sizes.value_width,
                   rows,
                   seen,
                   grad.stride,
                   out.value.stride,
                   {.transpose_a = true, .accumulate = accumulate}},
                  p, g, out.value.data);
    multiply_tile(
        {seen, sizes.width, rows, seen, query.stride, out.key.stride, {.transpose_a = true, .accumulate = accumulate}},
        gradient, q, out.key.data);
    multiply_tile({rows, sizes.width, seen, seen, key.stride, out.query.stride, {.accumulate = out.accumulate}},
                  gradient, key.data, out.query.at(tile.first));
    accumulate = true;
  });
}

void attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                        const AttentionSums& sums, const Tensor& grad, const AttentionOptions& options,
                        const AttentionGradients& out) {
  if (is_16_bit(query)) {
    const auto wide_of = [&](const Tensor& narrow) {
      return out.accumulate ? widened(narrow) : Tensor::empty(narrow.shape(), DType::float32, narrow.device());
    };
    const AttentionGradients wide{wide_of(out.query), wide_of(out.key), wide_of(out.value), out.accumulate};
    AttentionGradients narrow = out;
    attention_backward(widened(query), widened(key), widened(value), widened(mask), sums, widened(grad), options, wide);
    kernels::copy(wide.query, narrow.query);
    kernels::copy(wide.key, narrow.key);
    return kernels::copy(wide.value, narrow.value);
  }
  const Sizes sizes(query, key, value);
  Tensor p = Tensor::empty({tile_rows, sizes.keys}, query.dtype(), query.device()), gradient = Tensor::empty_like(p);
  visit_wide(query.dtype(), [&]<class T>() {
    const T* log_sum = sums.log_sum.data<T>();
    const T* grad_dot_out = sums.grad_dot_out.defined() ? sums.grad_dot_out.data<T>() : nullptr;
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      for (std::int64_t h = 0; h < sizes.heads; ++h) {
        const std::int64_t first = (b * sizes.heads + h) * sizes.queries;
        attend_backward<T>(sizes, {query, b, h}, {key, b, h}, {value, b, h}, {grad, b, h}, mask, options,
                           {log_sum + first, grad_dot_out ? grad_dot_out + first : nullptr},
                           {p.data<T>(), gradient.data<T>()},
                           {{out.query, b, h}, {out.key, b, h}, {out.value, b, h}, out.accumulate});
      }
  });
}

// Two results of one query by the shares that their keys have of the sum of all: all becomes the merged one.
template <class T>
DDPRUN_VECTORIZED void merge_row(std::int64_t width, T part_share, T all_share, const T* part, T* all) {
  for (std::int64_t j = 0; j < width; ++j) all[j] = all_share * all[j] + part_share * part[j];
}

template <class T>
T log_of_both(T a, T b) {
  const T highest = std::max(a, b);
  return highest + functor::log(functor::exp(a - highest) + functor::exp(b - highest));
}

template <class T>
T& row_number(const Tensor& numbers, std::int64_t batch, std::int64_t head, std::int64_t row) {
  const auto& strides = numbers.strides();
  return static_cast<T*>(const_cast<void*>(numbers.raw()))[batch * strides[0] + head * strides[1] + row * strides[2]];
}

void merge_attention(const AttentionResult& part, const AttentionResult& all) {
  const std::int64_t rows = part.out.size(2), width = part.out.size(3);
  visit_wide(part.out.dtype(), [&]<class T>() {
    for (std::int64_t b = 0; b < part.out.size(0); ++b)
      for (std::int64_t h = 0; h < part.out.size(1); ++h) {
        const Rows<T> from(part.out, b, h), to(all.out, b, h);
        for (std::int64_t i = 0; i < rows; ++i) {
          const T of_part = row_number<T>(part.log_sum, b, h, i);
          if (of_part == -std::numeric_limits<T>::infinity()) continue;  // it saw nothing
          T& of_all = row_number<T>(all.log_sum, b, h, i);
          const T merged = log_of_both(of_part, of_all);
          merge_row<T>(width, functor::exp(of_part - merged), functor::exp(of_all - merged), from.at(i), to.at(i));
          of_all = merged;
        }
      }
  });
}

}  // namespace

void add_attention(kernels::Table& table) {
  table.attention = attention;
  table.attention_backward = attention_backward;
  table.merge_attention = merge_attention;
}

}  // namespace ddprun::cpu
