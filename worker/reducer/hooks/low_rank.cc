#include "worker/reducer/hooks/low_rank.h"

#include <algorithm>
#include <cmath>

namespace ddprun {
namespace {

constexpr std::size_t lanes = 16;  // independent sums, which the compiler turns into vectors

template <class Sum>
Sum dot(const float* a, const float* b, std::size_t count) {
  Sum partial[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      partial[lane] += static_cast<Sum>(a[i + lane]) * static_cast<Sum>(b[i + lane]);
  Sum sum = 0;
  for (; i < count; ++i) sum += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
  for (const auto each : partial) sum += each;
  return sum;
}

// Adds factor x to `to`.
void add_scaled(float factor, const float* x, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * x[i];
}

double norm(const float* vector, std::size_t length) {
  return std::sqrt(dot<double>(vector, vector, length));
}

void subtract_projections(const float* vectors, std::size_t before, std::size_t length, float* vector) {
  for (std::size_t k = 0; k < before; ++k) {
    const auto* other = vectors + k * length;
    add_scaled(-static_cast<float>(dot<double>(vector, other, length)), other, length, vector);
  }
}

// Makes the vector at an index orthonormal, once those before are. Returns false if it depends on them and is zero.
bool orthonormalize_at(std::size_t index, std::size_t length, float* vectors) {
  constexpr double rounding = 1e-5;  // that of a difference of float32 vectors, relative to them
  auto* vector = vectors + index * length;
  const double before = norm(vector, length);
  for (int i = 0; i < 2; ++i) subtract_projections(vectors, index, length, vector);
  const double left = norm(vector, length);
  if (!(left > rounding * before) && !std::isnan(left)) {
    std::fill_n(vector, length, 0.0f);
    return false;
  }
  for (std::size_t i = 0; i < length; ++i) vector[i] = static_cast<float>(vector[i] / left);
  return true;
}

// Returns a number uniform in [-1, 1): splitmix64 of the index.
float random_number(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
  bits ^= bits >> 31;
  return static_cast<float>(static_cast<std::int64_t>(bits) >> 40) * 0x1p-23f;
}

}  // namespace

void multiply(const MatrixView& matrix, std::size_t rank, const float* right, float* left) {
  for (std::size_t row = 0; row < matrix.rows; ++row)
    for (std::size_t k = 0; k < rank; ++k)
      left[k * matrix.rows + row] =
          dot<float>(matrix.data + row * matrix.columns, right + k * matrix.columns, matrix.columns);
}

void multiply_transposed(const MatrixView& matrix, std::size_t rank, const float* left, float* right) {
  std::fill_n(right, rank * matrix.columns, 0.0f);
  for (std::size_t row = 0; row < matrix.rows; ++row)
    for (std::size_t k = 0; k < rank; ++k)
      add_scaled(left[k * matrix.rows + row], matrix.data + row * matrix.columns, matrix.columns,
                 right + k * matrix.columns);
}

void expand_row(std::size_t row, const MatrixView& shape, std::size_t rank, const float* left, const float* right,
                float* values) {
  std::fill_n(values, shape.columns, 0.0f);
  for (std::size_t k = 0; k < rank; ++k)
    add_scaled(left[k * shape.rows + row], right + k * shape.columns, shape.columns, values);
}

void orthonormalize(std::size_t rank, std::size_t length, float* vectors) {
  for (std::size_t k = 0; k < rank; ++k) orthonormalize_at(k, length, vectors);
}

void orthonormalize_or_draw(std::size_t rank, std::size_t length, float* vectors, std::uint64_t seed) {
  constexpr int attempts = 4;  // a random vector depends on the others with a probability of about 0
  for (std::size_t k = 0; k < rank; ++k) {
    for (int attempt = 0; !orthonormalize_at(k, length, vectors) && attempt < attempts; ++attempt)
      for (std::size_t i = 0; i < length; ++i)
        vectors[k * length + i] = random_number(seed + static_cast<std::uint64_t>(attempt), k * length + i);
  }
}

}  // namespace ddprun
