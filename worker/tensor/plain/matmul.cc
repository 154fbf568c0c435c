#include "ddprun/worker/tensor/plain/loops.h"
#include "ddprun/worker/tensor/plain/vectorize.h"

namespace ddprun::plain {

template <class T>
DDPRUN_VECTORIZED void Matmul<T>::matmul(Sizes sizes, const T* a, const T* b, T* out, kernels::MatmulOptions options) {
  const auto [m, n, k] = sizes;
  // The strides of op(a) (m, k) and op(b) (k, n) in rows and columns.
  const std::int64_t a_row = options.transpose_a ? 1 : k, a_column = options.transpose_a ? m : 1;
  const std::int64_t b_row = options.transpose_b ? 1 : n, b_column = options.transpose_b ? k : 1;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      T total = options.accumulate ? out[i * n + j] : T(0);
      for (std::int64_t l = 0; l < k; ++l) total += a[i * a_row + l * a_column] * b[l * b_row + j * b_column];
      out[i * n + j] = total;
    }
  }
}

template struct Matmul<float>;
template struct Matmul<double>;

}  // namespace ddprun::plain
