#include "worker/tensor/cpu/panel_product.h"

#include <cstring>

#include "worker/tensor/cpu/panel_loops.h"

// Blocks of the result that fit into the registers: each step loads one row of b's panels, and multiplies it with a
// column of a, of which every element is broadcast. This file is compiled with contraction: a product and its sum are
// one instruction.
namespace ddprun::cpu {
namespace {

template <class T>
using Vector __attribute__((vector_size(64))) = T;

template <class T>
[[gnu::always_inline]] inline Vector<T> load(const T* from) {
  Vector<T> result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}

struct PanelBlocks {
  template <int rows, int panels, class T>
  [[gnu::always_inline]] static void multiply(const PanelProduct<T>& product, std::int64_t i, std::int64_t j) {
    const T* a = product.a + i * product.a_row;
    const T* b = product.b + j;
    T* out = product.out + i * product.out_row + j;
    Vector<T> sums[rows][panels];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p)
        sums[r][p] = product.accumulate ? load(out + r * product.out_row + p * panel_width<T>) : Vector<T>{};
    for (std::int64_t k = 0; k < product.k; ++k, a += product.a_column, b += product.b_row) {
      Vector<T> row[panels];
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) row[p] = load(b + p * panel_width<T>);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const T factor = a[r * product.a_row];
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) sums[r][p] += factor * row[p];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p)
        std::memcpy(out + r * product.out_row + p * panel_width<T>, &sums[r][p], sizeof(Vector<T>));
  }
};

#if defined(__x86_64__)
// The sums take 16 of 32 registers of 64 bytes.
template <class T>
[[gnu::target("avx512f,fma")]] void multiply_avx512(const PanelProduct<T>& product) {
  multiply_all<PanelBlocks, 8, 2>(product);
}
// The sums take 12 of 16 registers of 32 bytes.
template <class T>
[[gnu::target("avx2,fma")]] void multiply_avx2(const PanelProduct<T>& product) {
  multiply_all<PanelBlocks, 6, 1>(product);
}
#endif
template <class T>
void multiply_plain(const PanelProduct<T>& product) {
  multiply_all<PanelBlocks, 2, 1>(product);
}

}  // namespace

template <class T>
std::vector<MultiplyPanels<T>> panel_product_variants() {
  std::vector<MultiplyPanels<T>> result;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) result.push_back(multiply_avx512<T>);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) result.push_back(multiply_avx2<T>);
#endif
  result.push_back(multiply_plain<T>);
  return result;
}
template std::vector<MultiplyPanels<float>> panel_product_variants();
template std::vector<MultiplyPanels<double>> panel_product_variants();

void multiply(const PanelProduct<float>& product) {
  static const MultiplyPanels<float> run = panel_product_variants<float>().front();
  run(product);
}
void multiply(const PanelProduct<double>& product) {
  static const MultiplyPanels<double> run = panel_product_variants<double>().front();
  run(product);
}

}  // namespace ddprun::cpu
