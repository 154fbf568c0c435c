#include <limits>

#include "worker/tensor/cpu/attention_pairs.h"
#include "worker/tensor/cpu/attention_rows.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/visit_dtype.h"

// Attention by tiles of queries of one head: the scores of a tile are a scratch that stays in the cache, and keys that
// causality hides from the whole tile are left out. What is saved for the backward pass is the logarithm of each
// query's sum (Dao et al., "FlashAttention", 2022). A head's rows are copied into scratches, from 16 bits to float32,
// with as many columns as whole panels have. Processors that multiply bfloat16 do without float32: attention_pairs.h.
namespace ddprun::cpu {
namespace {

// Rows of whole panels, in memory of its own.
template <class T>
struct Panels {
  Panels(std::int64_t rows, std::int64_t columns, const Tensor& like)
      : width(padded_columns<T>(columns)), memory(Tensor::empty({rows, width}, dtype_of<T>, like.device())) {}
  T* at(std::int64_t row) const { return memory.data<T>() + row * width; }
  const std::int64_t width;
  mutable Tensor memory;
};

template <class Stored, class T>
void load(Rows<Stored> from, std::int64_t rows, std::int64_t columns, const Panels<T>& to) {
  for (std::int64_t i = 0; i < rows; ++i) load_row(columns, to.width, from.at(i), to.at(i));
}
template <class Stored, class T>
void store(const Panels<T>& from, std::int64_t rows, std::int64_t columns, Rows<Stored> to) {
  for (std::int64_t i = 0; i < rows; ++i) store_row(columns, T(1), from.at(i), to.at(i));
}

// Transposes by squares that stay in the cache: neither side is read or written across many lines.
template <class T>
void transpose(const Panels<T>& from, std::int64_t rows, std::int64_t columns, const Panels<T>& to) {
  constexpr std::int64_t side = panel_width<T>;
  for (std::int64_t i = 0; i < to.width; i += side)
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t k = i; k < i + side; ++k) to.at(j)[k] = k < rows ? from.at(k)[j] : T(0);
}

struct Extent {
  std::int64_t rows, columns, inner;  // columns: those of whole panels
};
enum class Left : std::uint8_t { as_it_is, transposed };

// out = left right, or added to what is there
template <class T>
void multiply(Extent extent, Left orientation, const Panels<T>& left, const Panels<T>& right, const Panels<T>& out,
              bool accumulate = false) {
  const bool transposed = orientation == Left::transposed;
  multiply(PanelProduct<T>{.m = extent.rows,
                           .n = extent.columns,
                           .k = extent.inner,
                           .a = left.at(0),
                           .a_row = transposed ? 1 : left.width,
                           .a_column = transposed ? left.width : 1,
                           .b = right.at(0),
                           .b_row = right.width,
                           .out = out.at(0),
                           .out_row = out.width,
                           .accumulate = accumulate});
}

// The memory that one head needs, made once for all. The scores become probabilities in place.
template <class T>
struct HeadScratch {
  HeadScratch(const Sizes& sizes, const Tensor& like)
      : query(tile_rows, sizes.width, like),
        key(sizes.keys, sizes.width, like),
        key_columns(sizes.width, sizes.keys, like),
        value(sizes.keys, sizes.value_width, like),
        scores(tile_rows, sizes.keys, like) {}

  template <class Stored>
  void load_keys(const Sizes& sizes, Rows<Stored> keys, Rows<Stored> values) const {
    load(keys, sizes.keys, sizes.width, key);
    transpose(key, sizes.keys, sizes.width, key_columns);
    load(values, sizes.keys, sizes.value_width, value);
  }

  Panels<T> query, key, key_columns, value, scores;
};

template <class T>
struct ForwardScratch : HeadScratch<T> {
  ForwardScratch(const Sizes& sizes, const Tensor& like)
      : HeadScratch<T>(sizes, like), out(tile_rows, sizes.value_width, like) {}
  Panels<T> out;
};

// Computes one head.
template <class Stored, class T>
void attend(const Sizes& sizes, Rows<Stored> query, Rows<Stored> key, Rows<Stored> value, const Tensor& mask,
            const AttentionOptions& options, const ForwardScratch<T>& scratch, Rows<Stored> out, T* log_sum) {
  const auto& s = scratch;
  s.load_keys(sizes, key, value);
  for_each_tile(sizes, options.causal, [&](const Tile& tile) {
    const std::int64_t rows = tile.rows(), end = padded_columns<T>(tile.visible);
    for (std::int64_t i = 0; i < rows; ++i)
      load_row(sizes.width, s.query.width, query.at(tile.first + i), s.query.at(i));
    multiply({rows, end, sizes.width}, Left::as_it_is, s.query, s.key_columns, s.scores);
    T shares[tile_rows];
    exponentials_of_tile(sizes, tile, mask, options, s.scores, log_sum, shares);
    multiply({rows, s.out.width, tile.visible}, Left::as_it_is, s.scores, s.value, s.out);
    for (std::int64_t i = 0; i < rows; ++i)
      store_row(sizes.value_width, shares[i], s.out.at(i), out.at(tile.first + i));
  });
}

void attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
               const AttentionOptions& options, const AttentionResult& result) {
  const Sizes sizes(query, key, value);
  const Tensor wide_mask = widened(mask);
  Tensor log_sums = result.log_sum;
  if (attends_in_pairs(query, value)) return attention_in_pairs(query, key, value, wide_mask, options, result);
  visit_floating(query.dtype(), [&]<class Stored>() {
    using T = Computed<Stored>;
    const ForwardScratch<T> scratch(sizes, query);
    T* log_sum = log_sums.data<T>();
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      for (std::int64_t h = 0; h < sizes.heads; ++h, log_sum += sizes.queries)
        attend<Stored, T>(sizes, {query, b, h}, {key, b, h}, {value, b, h}, wide_mask, options, scratch,
                          {result.out, b, h}, log_sum);
  });
}

// The memory for the gradients as well: those of the result, of the scores, of query, key and value.
template <class T>
struct BackwardScratch : HeadScratch<T> {
  BackwardScratch(const Sizes& sizes, const Tensor& like)
      : HeadScratch<T>(sizes, like),
        value_columns(sizes.value_width, sizes.keys, like),
        grad(tile_rows, sizes.value_width, like),
        scores_grad(tile_rows, sizes.keys, like),
        query_grad(tile_rows, sizes.width, like),
        key_grad(sizes.keys, sizes.width, like),
        value_grad(sizes.keys, sizes.value_width, like) {}
  Panels<T> value_columns, grad, scores_grad, query_grad, key_grad, value_grad;
};

// Computes one head. The first tile sees all keys and writes their gradients, the others add to them.
template <class Stored, class T>
void attend_backward(const Sizes& sizes, Rows<Stored> query, Rows<Stored> key, Rows<Stored> value, Rows<Stored> grad,
                     const Tensor& mask, const AttentionOptions& options, HeadSums<T> sums,
                     const BackwardScratch<T>& scratch, HeadGradients<Stored> out) {
  const auto& s = scratch;
  s.load_keys(sizes, key, value);
  transpose(s.value, sizes.keys, sizes.value_width, s.value_columns);
  bool accumulate = out.accumulate;
  if (accumulate) {
    load(out.key, sizes.keys, sizes.width, s.key_grad);
    load(out.value, sizes.keys, sizes.value_width, s.value_grad);
  }
  for_each_tile(sizes, options.causal, [&](const Tile& tile) {
    const std::int64_t seen = tile.visible, rows = tile.rows(), end = padded_columns<T>(seen);
    const auto scale = static_cast<T>(options.scale);
    for (std::int64_t i = 0; i < rows; ++i) {
      load_row(sizes.width, s.query.width, query.at(tile.first + i), s.query.at(i));
      load_row(sizes.value_width, s.grad.width, grad.at(tile.first + i), s.grad.at(i));
    }
    const Panels<T>&p = s.scores, &g = s.scores_grad;
    multiply({rows, end, sizes.width}, Left::as_it_is, s.query, s.key_columns, p);
    multiply({rows, end, sizes.value_width}, Left::as_it_is, s.grad, s.value_columns, g);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t at = tile.first + i, visible = sizes.visible(at, options.causal);
      scale_row<T>(visible, end, scale, mask_row<T>(mask, sizes, at), p.at(i));
      restore_probabilities(visible, end, sums.log_sum[at], p.at(i));
      const T total = sums.grad_dot_out ? sums.grad_dot_out[at] : product_sum(end, p.at(i), g.at(i));
      score_gradient<T>(end, scale, total, p.at(i), g.at(i));
    }
    multiply({seen, s.grad.width, rows}, Left::transposed, p, s.grad, s.value_grad, accumulate);
    multiply({seen, s.query.width, rows}, Left::transposed, g, s.query, s.key_grad, accumulate);
    for (std::int64_t i = 0; i < rows && out.accumulate; ++i)
      load_row(sizes.width, s.query_grad.width, out.query.at(tile.first + i), s.query_grad.at(i));
    multiply({rows, s.key.width, seen}, Left::as_it_is, g, s.key, s.query_grad, out.accumulate);
    for (std::int64_t i = 0; i < rows; ++i)
      store_row(sizes.width, T(1), s.query_grad.at(i), out.query.at(tile.first + i));
    accumulate = true;
  });
  store(s.key_grad, sizes.keys, sizes.width, out.key);
  store(s.value_grad, sizes.keys, sizes.value_width, out.value);
}

void attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                        const AttentionSums& sums, const Tensor& grad, const AttentionOptions& options,
                        const AttentionGradients& out) {
  const Sizes sizes(query, key, value);
  const Tensor wide_mask = widened(mask);
  if (attends_in_pairs(query, value))
    return attention_backward_in_pairs(query, key, value, wide_mask, sums, grad, options, out);
  visit_floating(query.dtype(), [&]<class Stored>() {
    using T = Computed<Stored>;
    const BackwardScratch<T> scratch(sizes, query);
    const T* log_sum = sums.log_sum.data<T>();
    const T* grad_dot_out = sums.grad_dot_out.defined() ? sums.grad_dot_out.data<T>() : nullptr;
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      for (std::int64_t h = 0; h < sizes.heads; ++h) {
        const std::int64_t first = (b * sizes.heads + h) * sizes.queries;
        attend_backward<Stored, T>(sizes, {query, b, h}, {key, b, h}, {value, b, h}, {grad, b, h}, wide_mask, options,
                                   {log_sum + first, grad_dot_out ? grad_dot_out + first : nullptr}, scratch,
                                   {{out.query, b, h}, {out.key, b, h}, {out.value, b, h}, out.accumulate});
      }
  });
}

// Merges two results of one query by the shares that their keys have of the sum of all: all becomes the merged one.
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
