#include <algorithm>
#include <cmath>
#include <limits>

#include "ddprun/worker/tensor/cpu/lanes.h"
#include "ddprun/worker/tensor/cpu/table.h"
#include "ddprun/worker/tensor/cpu/vectorize.h"
#include "ddprun/worker/tensor/cpu/visit_dtype.h"
#include "ddprun/worker/tensor/functors/math.h"

// Attention head by head: the scores of one head are a scratch that stays in the cache, what is saved for the backward
// pass is the logarithm of each query's sum (Dao et al., "FlashAttention", 2022, without its tiles).
namespace ddprun::cpu {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionOptions;
using kernels::AttentionResult;
using kernels::MatmulOptions;

struct Sizes {
  Sizes(const Tensor& query, const Tensor& key, const Tensor& value)
      : heads(query.size(0)),
        queries(query.size(1)),
        keys(key.size(1)),
        width(query.size(2)),
        value_width(value.size(2)) {}
  std::int64_t heads, queries, keys, width, value_width;

  // How many keys query i sees.
  std::int64_t visible(std::int64_t i, bool causal) const {
    return causal ? std::clamp<std::int64_t>(i + 1 + keys - queries, 0, keys) : keys;
  }
};

template <class T>
const T* mask_row(const Tensor& mask, const Sizes& sizes, std::int64_t head, std::int64_t query) {
  if (!mask.defined()) return nullptr;
  const std::int64_t first = mask.dim() == 3 ? head * sizes.queries : 0;
  return mask.data<T>() + (first + query) * sizes.keys;
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

// d score = scale * p (d p - sum(p d p))
template <class T>
DDPRUN_VECTORIZED void score_gradient(std::int64_t keys, T scale, const T* p, T* gradient) {
  const T total = lane_sum<T>(
      keys, [ p, gradient ](std::int64_t j) __attribute__((always_inline)) { return p[j] * gradient[j]; });
  for (std::int64_t j = 0; j < keys; ++j) gradient[j] = scale * (p[j] * (gradient[j] - total));
}

void multiply(const Tensor& a, const Tensor& b, Tensor out, MatmulOptions options) {
  kernels::of(a).matmul(a, b, out, options);
}

AttentionResult attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                          const AttentionOptions& options) {
  if (is_16_bit(query)) {
    AttentionResult wide = attention(widened(query), widened(key), widened(value), widened(mask), options);
    return {wide.out.to(query.dtype()), wide.log_sum};
  }
  const Sizes sizes(query, key, value);
  AttentionResult result{Tensor::empty({sizes.heads, sizes.queries, sizes.value_width}, query.dtype(), query.device()),
                         Tensor::empty({sizes.heads, sizes.queries}, query.dtype(), query.device())};
  Tensor scores = Tensor::empty({sizes.queries, sizes.keys}, query.dtype(), query.device());
  visit_wide(query.dtype(), [&]<class T>() {
    for (std::int64_t head = 0; head < sizes.heads; ++head) {
      multiply(query.select(0, head), key.select(0, head), scores, {.transpose_b = true});
      T* log_sum = result.log_sum.data<T>() + head * sizes.queries;
      for (std::int64_t i = 0; i < sizes.queries; ++i) {
        T* row = scores.data<T>() + i * sizes.keys;
        const std::int64_t visible = sizes.visible(i, options.causal);
        scale_row<T>(visible, static_cast<T>(options.scale), mask_row<T>(mask, sizes, head, i), row);
        log_sum[i] = softmax_visible(visible, sizes.keys, row);
      }
      multiply(scores, value.select(0, head), result.out.select(0, head), {});
    }
  });
  return result;
}

AttentionGradients attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                      const AttentionResult& result, const Tensor& grad,
                                      const AttentionOptions& options) {
  if (is_16_bit(query)) {
    const AttentionGradients wide = attention_backward(widened(query), widened(key), widened(value), widened(mask),
                                                       {widened(result.out), result.log_sum}, widened(grad), options);
    return {wide.query.to(query.dtype()), wide.key.to(query.dtype()), wide.value.to(query.dtype())};
  }
  const Sizes sizes(query, key, value);
  AttentionGradients out{Tensor::empty_like(query), Tensor::empty_like(key), Tensor::empty_like(value)};
  Tensor p = Tensor::empty({sizes.queries, sizes.keys}, query.dtype(), query.device());
  Tensor gradient = Tensor::empty_like(p);
  visit_wide(query.dtype(), [&]<class T>() {
    for (std::int64_t head = 0; head < sizes.heads; ++head) {
      const Tensor q = query.select(0, head), k = key.select(0, head), g = grad.select(0, head);
      multiply(q, k, p, {.transpose_b = true});
      multiply(g, value.select(0, head), gradient, {.transpose_b = true});
      const T* log_sum = result.log_sum.data<T>() + head * sizes.queries;
      for (std::int64_t i = 0; i < sizes.queries; ++i) {
        T* row = p.data<T>() + i * sizes.keys;
        const std::int64_t visible = sizes.visible(i, options.causal);
        scale_row<T>(visible, static_cast<T>(options.scale), mask_row<T>(mask, sizes, head, i), row);
        restore_probabilities(visible, sizes.keys, log_sum[i], row);
        score_gradient<T>(sizes.keys, static_cast<T>(options.scale), row, gradient.data<T>() + i * sizes.keys);
      }
      multiply(p, g, out.value.select(0, head), {.transpose_a = true});
      multiply(gradient, k, out.query.select(0, head), {});
      multiply(gradient, q, out.key.select(0, head), {.transpose_a = true});
    }
  });
  return out;
}

}  // namespace

void add_attention(kernels::Table& table) {
  table.attention = attention;
  table.attention_backward = attention_backward;
}

}  // namespace ddprun::cpu
