#pragma once

#include <cstdint>
#include <vector>

namespace ddprun::cpu {

// Products of matrices that are in the cache already, such as those of one head of attention: b is read where it lies,
// so nothing is packed first.

// Columns come in panels of this many elements, 64 bytes.
template <class T>
inline constexpr std::int64_t panel_width = 64 / static_cast<std::int64_t>(sizeof(T));

// As many panels as cover the columns.
template <class T>
std::int64_t padded_columns(std::int64_t columns) {
  return (columns + panel_width<T> - 1) / panel_width<T> * panel_width<T>;
}

// out (m, n) = a (m, k) b (k, n), or added to what is there. Rows of b and out lie n or more elements apart; the
// elements of a lie as its strides say, so it may be transposed.
template <class T>
struct PanelProduct {
  std::int64_t m, n, k;  // n: a multiple of panel_width
  const T* a;
  std::int64_t a_row, a_column;  // from one element to the one of the next row, and of the next column
  const T* b;
  std::int64_t b_row;
  T* out;
  std::int64_t out_row;
  bool accumulate = false;
};

// The order of the sums depends on the sizes alone. Whether products are rounded before they are added depends on the
// processor.
void multiply(const PanelProduct<float>& product);
void multiply(const PanelProduct<double>& product);

// The code for each kind of processor, as far as this one has the instructions; multiply() takes the first. T: float,
// double.
template <class T>
using MultiplyPanels = void (*)(const PanelProduct<T>&);
template <class T>
std::vector<MultiplyPanels<T>> panel_product_variants();

}  // namespace ddprun::cpu
