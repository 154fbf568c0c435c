#include "ddprun/worker/tensor/blas.h"

#include <algorithm>

// The Fortran interface that every BLAS has.
extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);

namespace ddprun::blas {

void matmul(plain::Matmul<float>::Sizes sizes, const float* a, const float* b, float* out,
            kernels::MatmulOptions options) {
  const int m = static_cast<int>(sizes.m), n = static_cast<int>(sizes.n), k = static_cast<int>(sizes.k);
  if (m == 0 || n == 0) return;
  // Row-major out = op(a) op(b) is column-major out^T = op(b)^T op(a)^T. A leading dimension is never zero.
  const int lda = std::max(1, options.transpose_a ? m : k), ldb = std::max(1, options.transpose_b ? k : n);
  const float alpha = 1, beta = options.accumulate ? 1 : 0;
  sgemm_(options.transpose_b ? "T" : "N", options.transpose_a ? "T" : "N", &n, &m, &k, &alpha, b, &ldb, a, &lda, &beta,
         out, &n);
}

}  // namespace ddprun::blas
