#include "worker/tensor/cpu/attention_pairs.h"

#include <utility>

#include "common/float16.h"
#include "worker/tensor/cpu/attention_rows.h"
#include "worker/tensor/onednn/matmul.h"

namespace ddprun::cpu {
namespace {

std::int64_t pairs_of(std::int64_t elements) {
  return (elements + 1) / 2;
}

// A matrix of T with as many columns as whole panels have, in memory of its own.
template <class T>
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t columns, const Tensor& like)
      : width(padded_columns<T>(columns)), memory_(Tensor::empty({rows, width}, DType::float32, like.device())) {}
  T* at(std::int64_t row) const { return reinterpret_cast<T*>(memory_.data<float>()) + row * width; }
  const std::int64_t width;

 private:
  mutable Tensor memory_;
};
using Floats = Matrix<float>;
// A matrix of pairs of bfloat16, the first one in the lower half.
using Pairs = Matrix<std::uint32_t>;

std::uint32_t pair(BFloat16 first, BFloat16 second) {
  return std::uint32_t{first.bits} | std::uint32_t{second.bits} << 16;
}

// Loads pairs of two successive elements of a row. columns: an even number.
void load_along(Rows<BFloat16> from, std::int64_t first, std::int64_t rows, std::int64_t columns, const Pairs& to) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(to.at(i), from.at(first + i), static_cast<std::size_t>(columns) * sizeof(BFloat16));
}

// Makes pairs of the elements of two successive rows; zero beyond the last row.
DDPRUN_VECTORIZED void pair_rows(std::int64_t columns, const BFloat16* first, const BFloat16* second,
                                 std::uint32_t* to) {
  for (std::int64_t j = 0; j < columns; ++j) to[j] = pair(first[j], second[j]);
}
DDPRUN_VECTORIZED void pair_row_with_zero(std::int64_t columns, const BFloat16* row, std::uint32_t* to) {
  for (std::int64_t j = 0; j < columns; ++j) to[j] = row[j].bits;
}
void load_across(Rows<BFloat16> from, std::int64_t first, std::int64_t rows, std::int64_t columns, const Pairs& to) {
  std::int64_t i = 0;
  for (; i + 1 < rows; i += 2) pair_rows(columns, from.at(first + i), from.at(first + i + 1), to.at(i / 2));
  if (i < rows) pair_row_with_zero(columns, from.at(first + i), to.at(i / 2));
  for (std::int64_t k = 0; k < pairs_of(rows); ++k) std::fill(to.at(k) + columns, to.at(k) + to.width, 0U);
}

constexpr std::int64_t side = panel_width<float>;
static_assert(side == 16);

template <std::size_t... lane>
[[gnu::always_inline]] inline void interleave_halves(const auto(&from)[side], auto(&to)[side],
                                                     std::index_sequence<lane...>) {
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < side / 2; ++i) {
    to[2 * i] = __builtin_shufflevector(from[i], from[i + side / 2], (lane / 2 + lane % 2 * side)...);
    to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + side / 2], (lane / 2 + side / 2 + lane % 2 * side)...);
  }
}

// Transposes 16 x 16 pairs. Interleaving the rows of the upper half with those of the lower one four times does it.
DDPRUN_VECTORIZED void transpose_block(const BFloat16* from, std::int64_t from_stride, std::uint32_t* to,
                                       std::int64_t to_stride) {
  using Row [[gnu::vector_size(side * sizeof(std::uint32_t))]] = std::uint32_t;
  Row rows[side], others[side];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < side; ++i) std::memcpy(&rows[i], from + i * from_stride, sizeof(Row));
  constexpr auto lanes = std::make_index_sequence<side>();
#pragma GCC unroll 2
  for (int twice = 0; twice < 2; ++twice) {
    interleave_halves(rows, others, lanes);
    interleave_halves(others, rows, lanes);
  }
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < side; ++i) std::memcpy(to + i * to_stride, &rows[i], sizeof(Row));
}

// Transposes a block of which only some rows or pairs exist: missing rows are zero, missing pairs are left out.
void transpose_edge(Rows<BFloat16> from, std::int64_t row, std::int64_t rows, std::int64_t pair, std::int64_t pairs,
                    const Pairs& to) {
  const std::int64_t count = std::min(side, pairs - pair);
  BFloat16 block[side][2 * side] = {};
  for (std::int64_t i = row; i < std::min(row + side, rows); ++i)
    std::memcpy(block[i - row], from.at(i) + 2 * pair, static_cast<std::size_t>(count) * sizeof(std::uint32_t));
  std::uint32_t transposed[side][side];
  transpose_block(block[0], 2 * side, transposed[0], side);
  for (std::int64_t j = 0; j < count; ++j) std::memcpy(to.at(pair + j) + row, transposed[j], sizeof transposed[j]);
}

// Loads the transpose of load_along(): a row for each pair of columns, zero beyond the last of rows.
void load_transposed(Rows<BFloat16> from, std::int64_t rows, std::int64_t columns, const Pairs& to) {
  const std::int64_t pairs = columns / 2;
  for (std::int64_t i = 0; i < to.width; i += side)
    for (std::int64_t j = 0; j < pairs; j += side) {
      if (i + side <= rows && j + side <= pairs)
        transpose_block(from.at(i) + 2 * j, from.stride, to.at(j) + i, to.width);
      else
        transpose_edge(from, i, rows, j, pairs, to);
    }
}

// Makes rounded pairs of two successive elements. columns: those of whole panels.
DDPRUN_VECTORIZED void round_row(std::int64_t columns, const float* from, std::uint32_t* to) {
  constexpr std::int64_t step = panel_width<float>;
  for (std::int64_t j = 0; j < columns; j += step) {
    BFloat16 rounded[step];
    for (std::int64_t k = 0; k < step; ++k) rounded[k] = BFloat16(from[j + k]);
    std::memcpy(to + j / 2, rounded, sizeof rounded);
  }
}
void round_along(const Floats& from, std::int64_t rows, std::int64_t columns, const Pairs& to) {
  for (std::int64_t i = 0; i < rows; ++i) round_row(columns, from.at(i), to.at(i));
}
// Makes rounded pairs of the elements of two successive rows.
DDPRUN_VECTORIZED void round_two_rows(std::int64_t columns, const float* first, const float* second,
                                      std::uint32_t* to) {
  for (std::int64_t j = 0; j < columns; ++j) to[j] = pair(BFloat16(first[j]), BFloat16(second[j]));
}
DDPRUN_VECTORIZED void round_last_row(std::int64_t columns, const float* row, std::uint32_t* to) {
  for (std::int64_t j = 0; j < columns; ++j) to[j] = BFloat16(row[j]).bits;
}
void round_across(const Floats& from, std::int64_t rows, std::int64_t columns, const Pairs& to) {
  std::int64_t i = 0;
  for (; i + 1 < rows; i += 2) round_two_rows(columns, from.at(i), from.at(i + 1), to.at(i / 2));
  if (i < rows) round_last_row(columns, from.at(i), to.at(i / 2));
}

void store(const Floats& from, std::int64_t rows, std::int64_t columns, Rows<BFloat16> to) {
  for (std::int64_t i = 0; i < rows; ++i) store_row(columns, 1.0F, from.at(i), to.at(i));
}
void load(Rows<BFloat16> from, std::int64_t rows, std::int64_t columns, const Floats& to) {
  for (std::int64_t i = 0; i < rows; ++i) load_row(columns, to.width, from.at(i), to.at(i));
}

struct Extent {
  std::int64_t rows, columns, pairs;  // columns: those of whole panels
};
// out = left right; left has rows of pairs
void multiply_rows(Extent extent, const Pairs& left, const Pairs& right, const Floats& out, bool accumulate = false) {
  multiply(PairProduct{extent.rows, extent.columns, extent.pairs, left.at(0), left.width, 1, right.at(0), right.width,
                       out.at(0), out.width, accumulate});
}
// out = transposed left right; left has pairs of rows
void multiply_columns(Extent extent, const Pairs& left, const Pairs& right, const Floats& out, bool accumulate) {
  multiply(PairProduct{extent.rows, extent.columns, extent.pairs, left.at(0), 1, left.width, right.at(0), right.width,
                       out.at(0), out.width, accumulate});
}

struct ForwardScratch {
  ForwardScratch(const Sizes& sizes, const Tensor& like)
      : query(tile_rows, sizes.width / 2, like),
        key_columns(sizes.width / 2, sizes.keys, like),
        value(pairs_of(sizes.keys), sizes.value_width, like),
        probabilities(tile_rows, padded_columns<float>(sizes.keys) / 2, like),
        scores(tile_rows, sizes.keys, like),
        out(tile_rows, sizes.value_width, like) {}
  Pairs query, key_columns, value, probabilities;
  Floats scores, out;
};

// Computes one head.
void attend(const Sizes& sizes, Rows<BFloat16> query, Rows<BFloat16> key, Rows<BFloat16> value, const Tensor& mask,
            const AttentionOptions& options, const ForwardScratch& s, Rows<BFloat16> out, float* log_sum) {
  load_transposed(key, sizes.keys, sizes.width, s.key_columns);
  load_across(value, 0, sizes.keys, sizes.value_width, s.value);
  for_each_tile(sizes, options.causal, [&](const Tile& tile) {
    const std::int64_t rows = tile.rows(), end = padded_columns<float>(tile.visible);
    load_along(query, tile.first, rows, sizes.width, s.query);
    multiply_rows({rows, end, sizes.width / 2}, s.query, s.key_columns, s.scores);
    float shares[tile_rows];
    exponentials_of_tile(sizes, tile, mask, options, s.scores, log_sum, shares);
    round_along(s.scores, rows, end, s.probabilities);
    multiply_rows({rows, s.out.width, pairs_of(tile.visible)}, s.probabilities, s.value, s.out);
    for (std::int64_t i = 0; i < rows; ++i)
      store_row(sizes.value_width, shares[i], s.out.at(i), out.at(tile.first + i));
  });
}

struct BackwardScratch {
  BackwardScratch(const Sizes& sizes, const Tensor& like)
      : query(tile_rows, sizes.width / 2, like),
        query_across(tile_rows / 2, sizes.width, like),
        key_columns(sizes.width / 2, sizes.keys, like),
        key(pairs_of(sizes.keys), sizes.width, like),
        value_columns(sizes.value_width / 2, sizes.keys, like),
        grad(tile_rows, sizes.value_width / 2, like),
        grad_across(tile_rows / 2, sizes.value_width, like),
        probabilities_across(tile_rows / 2, sizes.keys, like),
        scores_grad_along(tile_rows, padded_columns<float>(sizes.keys) / 2, like),
        scores_grad_across(tile_rows / 2, sizes.keys, like),
        scores(tile_rows, sizes.keys, like),
        scores_grad(tile_rows, sizes.keys, like),
        query_grad(tile_rows, sizes.width, like),
        key_grad(sizes.keys, sizes.width, like),
        value_grad(sizes.keys, sizes.value_width, like) {}
  Pairs query, query_across, key_columns, key, value_columns, grad, grad_across, probabilities_across,
      scores_grad_along, scores_grad_across;
  Floats scores, scores_grad, query_grad, key_grad, value_grad;
};

// Computes one head. The first tile sees all keys and writes their gradients, the others add to them.
void attend_backward(const Sizes& sizes, Rows<BFloat16> query, Rows<BFloat16> key, Rows<BFloat16> value,
                     Rows<BFloat16> grad, const Tensor& mask, const AttentionOptions& options, HeadSums<float> sums,
                     const BackwardScratch& s, HeadGradients<BFloat16> out) {
  const std::int64_t width = sizes.width, value_width = sizes.value_width;
  load_transposed(key, sizes.keys, width, s.key_columns);
  load_transposed(value, sizes.keys, value_width, s.value_columns);
  load_across(key, 0, sizes.keys, width, s.key);
  bool accumulate = out.accumulate;
  if (accumulate) {
    load(out.key, sizes.keys, width, s.key_grad);
    load(out.value, sizes.keys, value_width, s.value_grad);
  }
  for_each_tile(sizes, options.causal, [&](const Tile& tile) {
    const std::int64_t seen = tile.visible, rows = tile.rows(), end = padded_columns<float>(seen);
    const auto scale = static_cast<float>(options.scale);
    load_along(query, tile.first, rows, width, s.query);
    load_across(query, tile.first, rows, width, s.query_across);
    load_along(grad, tile.first, rows, value_width, s.grad);
    load_across(grad, tile.first, rows, value_width, s.grad_across);
    const Floats &p = s.scores, &g = s.scores_grad;
    multiply_rows({rows, end, width / 2}, s.query, s.key_columns, p);
    multiply_rows({rows, end, value_width / 2}, s.grad, s.value_columns, g);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t at = tile.first + i, visible = sizes.visible(at, options.causal);
      scale_row<float>(visible, end, scale, mask_row<float>(mask, sizes, at), p.at(i));
      restore_probabilities(visible, end, sums.log_sum[at], p.at(i));
      const float total = sums.grad_dot_out ? sums.grad_dot_out[at] : product_sum(end, p.at(i), g.at(i));
      score_gradient<float>(end, scale, total, p.at(i), g.at(i));
    }
    round_across(p, rows, end, s.probabilities_across);
    round_across(g, rows, end, s.scores_grad_across);
    round_along(g, rows, end, s.scores_grad_along);
    multiply_columns({seen, s.value_grad.width, pairs_of(rows)}, s.probabilities_across, s.grad_across, s.value_grad,
                     accumulate);
    multiply_columns({seen, s.key_grad.width, pairs_of(rows)}, s.scores_grad_across, s.query_across, s.key_grad,
                     accumulate);
    for (std::int64_t i = 0; i < rows && out.accumulate; ++i)
      load_row(width, s.query_grad.width, out.query.at(tile.first + i), s.query_grad.at(i));
    multiply_rows({rows, s.query_grad.width, pairs_of(seen)}, s.scores_grad_along, s.key, s.query_grad, out.accumulate);
    for (std::int64_t i = 0; i < rows; ++i) store_row(width, 1.0F, s.query_grad.at(i), out.query.at(tile.first + i));
    accumulate = true;
  });
  store(s.key_grad, sizes.keys, width, out.key);
  store(s.value_grad, sizes.keys, value_width, out.value);
}

template <class Visit>
void for_each_head(const Sizes& sizes, Visit visit) {
  for (std::int64_t b = 0; b < sizes.batch; ++b)
    for (std::int64_t h = 0; h < sizes.heads; ++h) visit(b, h, (b * sizes.heads + h) * sizes.queries);
}

}  // namespace

bool attends_in_pairs(const Tensor& query, const Tensor& value) {
  return query.dtype() == DType::bfloat16 && query.size(3) % 2 == 0 && value.size(3) % 2 == 0 && multiplies_pairs() &&
         onednn::multiplies_fast(query.dtype());
}

void attention_in_pairs(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                        const AttentionOptions& options, const AttentionResult& result) {
  const Sizes sizes(query, key, value);
  const ForwardScratch scratch(sizes, query);
  Tensor log_sums = result.log_sum;
  float* const log_sum = log_sums.data<float>();
  for_each_head(sizes, [&](std::int64_t b, std::int64_t h, std::int64_t first) {
    attend(sizes, {query, b, h}, {key, b, h}, {value, b, h}, mask, options, scratch, {result.out, b, h},
           log_sum + first);
  });
}

void attention_backward_in_pairs(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                 const AttentionSums& sums, const Tensor& grad, const AttentionOptions& options,
                                 const AttentionGradients& out) {
  const Sizes sizes(query, key, value);
  const BackwardScratch scratch(sizes, query);
  const float* const log_sum = sums.log_sum.data<float>();
  const float* const grad_dot_out = sums.grad_dot_out.defined() ? sums.grad_dot_out.data<float>() : nullptr;
  for_each_head(sizes, [&](std::int64_t b, std::int64_t h, std::int64_t first) {
    attend_backward(sizes, {query, b, h}, {key, b, h}, {value, b, h}, {grad, b, h}, mask, options,
                    {log_sum + first, grad_dot_out ? grad_dot_out + first : nullptr}, scratch,
                    {{out.query, b, h}, {out.key, b, h}, {out.value, b, h}, out.accumulate});
  });
}

}  // namespace ddprun::cpu
