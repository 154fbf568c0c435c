#include <bit>

#include "worker/tensor/cpu/matrix_product.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"

// float32 runs in oneDNN; the loops here are float64's, and the oracle of oneDNN's.
namespace ddprun::cpu {

DDPRUN_VECTORIZED void multiply(const Product& product, const double* a, const double* b, double* out) {
  const auto [m, n, k, a_stride, b_stride, out_stride, options, bias] = product;
  // The steps of op(a) (m, k) and op(b) (k, n) from row to row and from column to column.
  const std::int64_t a_row = options.transpose_a ? 1 : a_stride, a_column = options.transpose_a ? a_stride : 1;
  const std::int64_t b_row = options.transpose_b ? 1 : b_stride, b_column = options.transpose_b ? b_stride : 1;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double total = options.accumulate ? out[i * out_stride + j] : 0.0;
      for (std::int64_t l = 0; l < k; ++l) total += a[i * a_row + l * a_column] * b[l * b_row + j * b_column];
      out[i * out_stride + j] = total;
    }
  }
}

namespace {

using kernels::MatmulOptions;

Product product_of(const Tensor& a, const Tensor& b, const Tensor& out, MatmulOptions options) {
  return {.m = out.size(-2),
          .n = out.size(-1),
          .k = options.transpose_a ? a.size(-2) : a.size(-1),
          .a_stride = a.size(-1),
          .b_stride = b.size(-1),
          .out_stride = out.size(-1),
          .options = options};
}

// Returns whether the processor has arithmetic for these 16-bit matrices; out may be float32.
bool multiplies_in_16_bits(const Product& p, const Tensor& a, const Tensor& b, const Tensor& out) {
  const bool fits = a.dtype() == b.dtype() && (out.dtype() == a.dtype() || out.dtype() == DType::float32);
  return fits && is_16_bit(a) && p.m > 0 && p.n > 0 && p.k > 0 && onednn::multiplies_fast(a.dtype());
}

void multiply_in_16_bits(std::int64_t count, const Product& p, const Tensor& a, const Tensor& b, Tensor& out) {
  const auto at = [](auto* base, std::int64_t element, DType dtype) {
    return base + element * static_cast<std::int64_t>(size_of(dtype));
  };
  for (std::int64_t i = 0; i < count; ++i)
    onednn::multiply(p, {a.dtype(), out.dtype()}, at(static_cast<const std::byte*>(a.raw()), i * p.m * p.k, a.dtype()),
                     at(static_cast<const std::byte*>(b.raw()), i * p.k * p.n, b.dtype()),
                     at(static_cast<std::byte*>(out.raw()), i * p.m * p.n, out.dtype()));
}

// A primitive is kept for each size: a size that varies is made of powers of two, of which there are few.
void multiply_varying(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  options.varying = false;
  const std::int64_t size = a.size(0);  // the rows of a: those of the result, or the sums' length
  for (std::int64_t first = 0; first < size;) {
    const auto part = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size - first)));
    const Tensor a_part = a.slice(0, first, part);
    Tensor out_part = options.transpose_a ? out : out.slice(0, first, part);
    const Tensor b_part = options.transpose_a ? b.slice(0, first, part) : b;
    multiply_in_16_bits(1, product_of(a_part, b_part, out_part, options), a_part, b_part, out_part);
    options.accumulate = options.accumulate || options.transpose_a;
    first += part;
  }
}

// Makes one product, or one for each leading index. out may be float32 while a and b have 16 bits.
void multiply_each(std::int64_t count, const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  const Product product = product_of(a, b, out, options);
  if (multiplies_in_16_bits(product, a, b, out))
    return options.varying ? multiply_varying(a, b, out, options) : multiply_in_16_bits(count, product, a, b, out);
  if (is_16_bit(out)) {
    Tensor wide = widened(out);
    multiply_each(count, a, b, wide, options);
    kernels::copy(wide, out);
    return;
  }
  const std::int64_t a_size = product.m * product.k, b_size = product.k * product.n, out_size = product.m * product.n;
  const Tensor wide_a = widened(a), wide_b = widened(b);
  visit_wide(out.dtype(), [&]<class T>() {
    for (std::int64_t i = 0; i < count; ++i)
      multiply(product, wide_a.data<T>() + i * a_size, wide_b.data<T>() + i * b_size, out.data<T>() + i * out_size);
  });
}

void matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  multiply_each(1, a, b, out, options);
}

void addmm(const Tensor& bias, const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  Product product = product_of(a, b, out, options);
  product.bias = multiplies_in_16_bits(product, a, b, out) && !options.varying && bias.dtype() == out.dtype();
  if (product.bias) return onednn::multiply(product, {a.dtype(), out.dtype()}, a.raw(), b.raw(), out.raw(), bias.raw());
  matmul(a, b, out, options);
  kernels::of(out).add_bias(out, bias, out.size(0), 1);
}

void batched_matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  multiply_each(out.size(0), a, b, out, options);
}

void fused_matmul(const Tensor& a, const Tensor& b, Tensor& out, const kernels::MatmulFusion& fusion,
                  MatmulOptions options) {
  const kernels::Table& cpu = kernels::of(out);
  if (fusion.sums.defined()) {
    const Tensor& of = fusion.sums_of_a ? a : b;
    Tensor sums = fusion.sums;
    cpu.sum_to_bias(of, of.size(0), 1, sums, fusion.accumulate_sums);
  }
  Tensor product = fusion.gelu_input.defined() ? fusion.gelu_input : out;
  if (fusion.addend.defined()) {
    kernels::copy(fusion.addend, product);
    options.accumulate = true;
  }
  if (fusion.bias.defined())
    addmm(fusion.bias, a, b, product, options);
  else
    matmul(a, b, product, options);
  if (fusion.gelu_input.defined()) cpu.unary(kernels::Unary::gelu_tanh, {}, product, out);
  if (fusion.gelu_gradient.defined())
    cpu.unary_gradient(kernels::Unary::gelu_tanh, {}, fusion.gelu_gradient, product.clone(), out);
}

}  // namespace

void add_matrix_products(kernels::Table& table) {
  table.matmul = matmul;
  table.addmm = addmm;
  table.batched_matmul = batched_matmul;
  table.fused_matmul = fused_matmul;
}

}  // namespace ddprun::cpu
