#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddprun {

// A dense matrix in row-major order.
struct MatrixView {
  const float* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// Factors are rank vectors of a matrix's rows or columns, one vector after the other. The order of sums depends only on
// the sizes.

// left = matrix x right: vectors of as many elements as the matrix has rows
void multiply(const MatrixView& matrix, std::size_t rank, const float* right, float* left);
// right = transposed matrix x left: vectors of as many elements as the matrix has columns
void multiply_transposed(const MatrixView& matrix, std::size_t rank, const float* left, float* right);
// Computes row `row` of left x transposed right.
void expand_row(std::size_t row, const MatrixView& shape, std::size_t rank, const float* left, const float* right,
                float* values);

// Makes the vectors orthogonal and of length 1, in order (Gram and Schmidt, twice). One that depends on those before it
// becomes zero.
void orthonormalize(std::size_t rank, std::size_t length, float* vectors);
// Does the same, with random vectors in place of those that are zero. seed: that of the random numbers.
void orthonormalize_or_draw(std::size_t rank, std::size_t length, float* vectors, std::uint64_t seed);

}  // namespace ddprun
