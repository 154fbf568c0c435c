#pragma once

#include "worker/tensor/kernels.h"

namespace ddprun::onednn {

// out (m, n) = op(a) (m, k) op(b) (k, n), row-major, with the distances between rows in memory.
struct Product {
  std::int64_t m, n, k;
  std::int64_t a_stride, b_stride, out_stride;
  kernels::MatmulOptions options;
  bool bias = false;  // (n), of the type of out, is added to each row
  friend auto operator<=>(const Product&, const Product&) = default;
};

// Multiplies float32 through oneDNN: its matmul primitive or its sgemm, whichever serves a whole run better.
void multiply(const Product& product, const float* a, const float* b, float* out);

// Returns whether this processor multiplies 16-bit matrices faster than float32.
bool multiplies_fast(DType dtype);
// a and b of one type, out of that type or float32, through oneDNN's matmul primitive, which is made once for each
// Product and kept, for each thread. Sums are float32. Throws Errc::internal for a type that the processor lacks.
struct Operands {
  DType in, out;
};
void multiply(const Product& product, Operands types, const void* a, const void* b, void* out,
              const void* bias = nullptr);

}  // namespace ddprun::onednn
