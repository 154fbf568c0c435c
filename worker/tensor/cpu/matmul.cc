#include "ddprun/worker/tensor/onednn/matmul.h"

#include "ddprun/worker/tensor/cpu/table.h"
#include "ddprun/worker/tensor/cpu/vectorize.h"
#include "ddprun/worker/tensor/cpu/visit_dtype.h"

// float32 runs in oneDNN; the loops here are float64's, and the oracle of oneDNN's.
namespace ddprun::cpu {
namespace {

using kernels::MatmulOptions;

DDPRUN_VECTORIZED void multiply(onednn::MatmulSizes sizes, const double* a, const double* b, double* out,
                                MatmulOptions options) {
  const auto [m, n, k] = sizes;
  // The strides of op(a) (m, k) and op(b) (k, n) in rows and columns.
  const std::int64_t a_row = options.transpose_a ? 1 : k, a_column = options.transpose_a ? m : 1;
  const std::int64_t b_row = options.transpose_b ? 1 : n, b_column = options.transpose_b ? k : 1;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double total = options.accumulate ? out[i * n + j] : 0.0;
      for (std::int64_t l = 0; l < k; ++l) total += a[i * a_row + l * a_column] * b[l * b_row + j * b_column];
      out[i * n + j] = total;
    }
  }
}

// One product, or one for each leading index. out may be float32 while a and b have 16 bits.
void multiply_each(std::int64_t count, const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  if (is_16_bit(out)) {
    Tensor wide = widened(out);
    multiply_each(count, a, b, wide, options);
    kernels::copy(wide, out);
    return;
  }
  const onednn::MatmulSizes sizes{out.size(-2), out.size(-1), options.transpose_a ? a.size(-2) : a.size(-1)};
  const std::int64_t a_size = sizes.m * sizes.k, b_size = sizes.k * sizes.n, out_size = sizes.m * sizes.n;
  if (out.dtype() == DType::float64) {
    for (std::int64_t i = 0; i < count; ++i)
      multiply(sizes, a.data<double>() + i * a_size, b.data<double>() + i * b_size, out.data<double>() + i * out_size,
               options);
    return;
  }
  if (out.dtype() != DType::float32) refuse_dtype(out.dtype());
  const Tensor wide_a = widened(a), wide_b = widened(b);
  for (std::int64_t i = 0; i < count; ++i)
    onednn::matmul(sizes, wide_a.data<float>() + i * a_size, wide_b.data<float>() + i * b_size,
                   out.data<float>() + i * out_size, options);
}

void matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  multiply_each(1, a, b, out, options);
}

void batched_matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  multiply_each(out.size(0), a, b, out, options);
}

}  // namespace

void add_matrix_products(kernels::Table& table) {
  table.matmul = matmul;
  table.batched_matmul = batched_matmul;
}

}  // namespace ddprun::cpu
