#include <vector>

#include "common/float16.h"
#include "worker/tensor/cpu/panel_product.h"

namespace ddprun::cpu {

#ifdef DDPRUN_PAIRS_AVX512
void multiply_pairs_avx512(const PairProduct& product);
#endif

namespace {

void multiply_pairs_plain(const PairProduct& p) {
  const auto low = [](std::uint32_t pair) { return float_from_bfloat16(static_cast<std::uint16_t>(pair)); };
  const auto high = [](std::uint32_t pair) { return float_from_bfloat16(static_cast<std::uint16_t>(pair >> 16)); };
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      float& out = p.out[i * p.out_row + j];
      float sum = p.accumulate ? out : 0;
      for (std::int64_t k = 0; k < p.k; ++k) {
        const std::uint32_t a = p.a[i * p.a_row + k * p.a_column], b = p.b[k * p.b_row + j];
        sum += low(a) * low(b) + high(a) * high(b);
      }
      out = sum;
    }
}

}  // namespace

bool multiplies_pairs() {
#ifdef DDPRUN_PAIRS_AVX512
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

std::vector<MultiplyPairs> pair_product_variants() {
  std::vector<MultiplyPairs> result;
#ifdef DDPRUN_PAIRS_AVX512
  if (multiplies_pairs()) result.push_back(multiply_pairs_avx512);
#endif
  result.push_back(multiply_pairs_plain);
  return result;
}

void multiply(const PairProduct& product) {
  static const MultiplyPairs run = pair_product_variants().front();
  run(product);
}

}  // namespace ddprun::cpu
