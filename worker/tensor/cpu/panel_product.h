#pragma once

#include <cstdint>
#include <vector>

#include "common/rounding.h"

namespace ddprun::cpu {

// Products of matrices that are in the cache already, such as those of one head of attention: b is read where it lies,
// so nothing is packed first.

// Columns come in panels of this many elements, 64 bytes.
template <class T>
inline constexpr std::int64_t panel_width = 64 / static_cast<std::int64_t>(sizeof(T));

// Returns the number of columns of as many panels as cover these.
template <class T>
std::int64_t padded_columns(std::int64_t columns) {
  return round_up(columns, panel_width<T>);
}

// out (m, n) = a (m, k) b (k, n), or added to what is there. Rows of b and out lie n or more elements apart; the
// elements of a lie as its strides say, so it may be transposed.
template <class T>
struct PanelProduct {
  std::int64_t m, n, k;  // n: a multiple of panel_width
  const T* a;
  std::int64_t a_row, a_column;  // distances from one element to that of the next row, and of the next column
  const T* b;
  std::int64_t b_row;
  T* out;
  std::int64_t out_row;
  bool accumulate = false;
};

// The order of the sums depends only on the sizes. Whether products are rounded before they are added depends on the
// processor.
void multiply(const PanelProduct<float>& product);
void multiply(const PanelProduct<double>& product);

// The same for bfloat16, in pairs that lie in 32 bits: sums of products of two in float32. A pair of a are elements of
// two successive columns, a pair of b those of two successive rows. Strides and k count pairs.
struct PairProduct {
  std::int64_t m, n, k;  // n: a multiple of panel_width<float>
  const std::uint32_t* a;
  std::int64_t a_row, a_column;
  const std::uint32_t* b;
  std::int64_t b_row;
  float* out;
  std::int64_t out_row;
  bool accumulate = false;
};
void multiply(const PairProduct& product);
// Returns whether this processor has an instruction for them.
bool multiplies_pairs();

// The code for each kind of processor, as far as this one has the instructions; multiply() takes the first. T: float,
// double.
template <class T>
using MultiplyPanels = void (*)(const PanelProduct<T>&);
template <class T>
std::vector<MultiplyPanels<T>> panel_product_variants();
using MultiplyPairs = void (*)(const PairProduct&);
std::vector<MultiplyPairs> pair_product_variants();

}  // namespace ddprun::cpu
