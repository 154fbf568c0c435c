// The loops over the blocks of a product. Everything here has internal linkage: each including file is compiled for its
// own kind of processor. Blocks::multiply<rows, panels>(product, i, j) computes the block that begins at row i and
// column j.
#pragma once

#include <cstdint>

namespace ddprun::cpu {
namespace {

template <class Blocks, int rows, int panels, class Product>
[[gnu::always_inline]] inline void multiply_rows(const Product& product, std::int64_t& i) {
  constexpr std::int64_t width = 64 / sizeof(*product.out);
  for (; i + rows <= product.m; i += rows) {
    std::int64_t j = 0;
    for (; j + panels * width <= product.n; j += panels * width) Blocks::template multiply<rows, panels>(product, i, j);
    for (; j < product.n; j += width) Blocks::template multiply<rows, 1>(product, i, j);
  }
}

template <class Blocks, int rows, int panels, class Product>
[[gnu::always_inline]] inline void multiply_all(const Product& product) {
  std::int64_t i = 0;
  multiply_rows<Blocks, rows, panels>(product, i);
  multiply_rows<Blocks, 2, panels>(product, i);
  multiply_rows<Blocks, 1, panels>(product, i);
}

}  // namespace
}  // namespace ddprun::cpu
