#include "worker/tensor/cpu/panel_product.h"

#include <cstdint>
#include <vector>

#include "common/float16.h"
#include "tests/support/catch.h"

using namespace ddprun::cpu;

namespace {

// Returns small integers: every sum is exact, in any order.
template <class T>
std::vector<T> integers(std::int64_t count, int seed) {
  std::vector<T> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<T>(static_cast<int>(i * 7 + 3) % seed - 2);
  return result;
}

// Rows of the result lie further apart than it is wide: the memory between them must not change.
template <class T>
void check(MultiplyPanels<T> multiply, std::int64_t m, std::int64_t columns, std::int64_t k, bool transpose_a,
           bool accumulate) {
  CAPTURE(m, columns, k, transpose_a, accumulate);
  const std::int64_t n = padded_columns<T>(columns), out_row = n + 3;
  const auto a = integers<T>(m * k, 11), b = integers<T>(k * n, 13);
  auto out = integers<T>(m * out_row, 5);
  const auto before = out;
  const std::int64_t a_row = transpose_a ? 1 : k, a_column = transpose_a ? m : 1;
  multiply(PanelProduct<T>{m, n, k, a.data(), a_row, a_column, b.data(), n, out.data(), out_row, accumulate});
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < out_row; ++j) {
      const auto at = static_cast<std::size_t>(i * out_row + j);
      T expected = j < n && !accumulate ? 0 : before[at];
      for (std::int64_t s = 0; j < n && s < k; ++s)
        expected += a[static_cast<std::size_t>(i * a_row + s * a_column)] * b[static_cast<std::size_t>(s * n + j)];
      wrong += out[at] != expected ? 1U : 0U;
    }
  REQUIRE(wrong == 0);
}

template <class T>
void check_all_sizes(MultiplyPanels<T> multiply) {
  for (const std::int64_t m : {0, 1, 2, 3, 7, 8, 9, 32})
    for (const std::int64_t columns : {1, 16, 17, 33, 64, 80})
      for (const std::int64_t k : {0, 1, 5, 32})
        for (const bool transpose_a : {false, true})
          for (const bool accumulate : {false, true}) check<T>(multiply, m, columns, k, transpose_a, accumulate);
}

}  // namespace

TEST_CASE("a product of panels is that of its definition, for any number of rows and panels, on any processor") {
  for (const auto multiply : panel_product_variants<float>()) check_all_sizes<float>(multiply);
  for (const auto multiply : panel_product_variants<double>()) check_all_sizes<double>(multiply);
}

namespace {

// Returns pairs of small integers as bfloat16; only one of a pair at the end if the inner size is odd.
std::uint32_t pair_of(int first, int second) {
  return std::uint32_t{ddprun::BFloat16(static_cast<float>(first)).bits} |
         std::uint32_t{ddprun::BFloat16(static_cast<float>(second)).bits} << 16;
}

void check_pairs(MultiplyPairs multiply, std::int64_t m, std::int64_t columns, std::int64_t inner, bool transpose_a,
                 bool accumulate) {
  CAPTURE(m, columns, inner, transpose_a, accumulate);
  const std::int64_t n = padded_columns<float>(columns), k = (inner + 1) / 2, out_row = n + 3;
  const auto a = [&](std::int64_t i, std::int64_t s) {
    return s < inner ? static_cast<int>((i * 5 + s * 3) % 7) - 3 : 0;
  };
  const auto b = [&](std::int64_t s, std::int64_t j) { return static_cast<int>((s * 11 + j * 2) % 9) - 4; };
  const std::int64_t a_row = transpose_a ? 1 : k, a_column = transpose_a ? m : 1;
  std::vector<std::uint32_t> left(static_cast<std::size_t>(m * k)), right(static_cast<std::size_t>(k * n));
  for (std::int64_t s = 0; s < k; ++s) {
    for (std::int64_t i = 0; i < m; ++i)
      left[static_cast<std::size_t>(i * a_row + s * a_column)] = pair_of(a(i, 2 * s), a(i, 2 * s + 1));
    for (std::int64_t j = 0; j < n; ++j)
      right[static_cast<std::size_t>(s * n + j)] = pair_of(b(2 * s, j), b(2 * s + 1, j));
  }
  auto out = integers<float>(m * out_row, 5);
  const auto before = out;
  multiply(PairProduct{m, n, k, left.data(), a_row, a_column, right.data(), n, out.data(), out_row, accumulate});
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < out_row; ++j) {
      const auto at = static_cast<std::size_t>(i * out_row + j);
      float expected = j < n && !accumulate ? 0 : before[at];
      for (std::int64_t s = 0; j < n && s < inner; ++s) expected += static_cast<float>(a(i, s) * b(s, j));
      wrong += out[at] != expected ? 1U : 0U;
    }
  REQUIRE(wrong == 0);
}

}  // namespace

TEST_CASE("a product of pairs of bfloat16 is that of its definition, on any processor") {
  for (const auto multiply : pair_product_variants())
    for (const std::int64_t m : {0, 1, 2, 3, 7, 8, 9, 32})
      for (const std::int64_t columns : {1, 16, 17, 33, 80})
        for (const std::int64_t inner : {0, 1, 2, 5, 32})
          for (const bool transpose_a : {false, true})
            for (const bool accumulate : {false, true})
              check_pairs(multiply, m, columns, inner, transpose_a, accumulate);
}

TEST_CASE("columns are padded to whole panels of 64 bytes") {
  CHECK(padded_columns<float>(0) == 0);
  CHECK(padded_columns<float>(1) == 16);
  CHECK(padded_columns<float>(16) == 16);
  CHECK(padded_columns<double>(17) == 24);
}
