// Compiled for AVX-512 with its instructions for bfloat16: see CMakeLists.txt.
#include <immintrin.h>

#include "worker/tensor/cpu/panel_loops.h"
#include "worker/tensor/cpu/panel_product.h"

namespace ddprun::cpu {
namespace {

// A block of the result that fits into the registers. The instruction rounds products and sums in an order of its own,
// and takes subnormal numbers as zero.
struct PairBlocks {
  template <int rows, int panels>
  [[gnu::always_inline]] static void multiply(const PairProduct& product, std::int64_t i, std::int64_t j) {
    const std::uint32_t* a = product.a + i * product.a_row;
    const std::uint32_t* b = product.b + j;
    float* out = product.out + i * product.out_row + j;
    constexpr std::int64_t width = panel_width<float>;
    __m512 sums[rows][panels];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p)
        sums[r][p] = product.accumulate ? _mm512_loadu_ps(out + r * product.out_row + p * width) : _mm512_setzero_ps();
    for (std::int64_t k = 0; k < product.k; ++k, a += product.a_column, b += product.b_row) {
      __m512i row[panels];
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) row[p] = _mm512_loadu_si512(b + p * width);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const __m512i factor = _mm512_set1_epi32(static_cast<int>(a[r * product.a_row]));
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p)
          sums[r][p] =
              _mm512_dpbf16_ps(sums[r][p], reinterpret_cast<__m512bh>(factor), reinterpret_cast<__m512bh>(row[p]));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) _mm512_storeu_ps(out + r * product.out_row + p * width, sums[r][p]);
  }
};

}  // namespace

// The sums take 16 of 32 registers.
void multiply_pairs_avx512(const PairProduct& product) {
  multiply_all<PairBlocks, 8, 2>(product);
}

}  // namespace ddprun::cpu
