#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "ddprun/worker/tensor/cuda/module/library_call.h"

namespace ddprun::cuda {

// out (m, n) = op(a) (m, k) op(b) (k, n), `count` times, the matrices one after the other: all that cuBLASLt's choice
// of an algorithm depends on.
struct Product {
  std::int64_t m, n, k, count;
  DType in, out;
  bool transpose_a, transpose_b;
  bool bias;  // added by the product itself
  bool tf32;
  std::uint32_t a_alignment, b_alignment, out_alignment;  // of the memory, in bytes
  friend auto operator<=>(const Product&, const Product&) = default;
};

// How cuBLASLt computes a product. Its matrices are stored by columns, so the transposed product is asked for:
// out^T = op(b)^T op(a)^T, with b first, where what it sees as a column is a row of ours.
struct ProductPlan {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t first{}, second{}, out{};
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

// bias: null, or the vector of the product that comes first, whose alignment counts.
ProductPlan make_plan(cublasLtHandle_t library, const Product& product, const void* bias, const LibraryCall& call);
// The plan's next products add this vector.
void set_bias(ProductPlan& plan, const void* bias, const LibraryCall& call);

}  // namespace ddprun::cuda
