#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "worker/tensor/cuda/module/library_call.h"

namespace ddprun::cuda {

// The operations of cuBLASLt on a product before it writes it.
enum class Epilogue : std::uint8_t {
  none,
  bias,           // a vector is added to each row
  gelu,           // the sums go to a second matrix, their GELU to the result
  gelu_bias,      // the same, with the bias in the sums
  gelu_gradient,  // the product times the derivative of the GELU at the values of a second matrix
  sums_of_a,      // the columns of a, as it is stored, are summed into a vector; or those of b
  sums_of_b,
};
// The vector and the matrix of an epilogue.
struct EpilogueMemory {
  void* vector = nullptr;
  void* matrix = nullptr;  // (m, n), of out's type
};

// out (m, n) = op(a) (m, k) op(b) (k, n), `count` times, the matrices one after the other: all that cuBLASLt's choice
// of an algorithm depends on.
struct Product {
  std::int64_t m, n, k, count;
  DType in, out;
  bool transpose_a, transpose_b;
  Epilogue epilogue;
  bool tf32;
  std::uint32_t a_alignment, b_alignment, out_alignment;  // those of the memory, in bytes
  friend auto operator<=>(const Product&, const Product&) = default;
};

// The way in which cuBLASLt computes a product. Its matrices are stored by columns, so the transposed product is asked
// for: out^T = op(b)^T op(a)^T, with b first, where what it sees as a column is a row of ours.
struct ProductPlan {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t first{}, second{}, out{};
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  bool exists = false;  // false if cuBLASLt has no algorithm with this epilogue for this device, these types and sizes
};

// memory: that of the product that comes first, whose alignment counts. Throws where there is no algorithm although
// there is no epilogue.
ProductPlan make_plan(cublasLtHandle_t library, const Product& product, const EpilogueMemory& memory,
                      const LibraryCall& call);
// Makes the plan's next products use this memory.
void set_memory(ProductPlan& plan, const Product& product, const EpilogueMemory& memory, const LibraryCall& call);

}  // namespace ddprun::cuda
