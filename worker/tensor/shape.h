#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

namespace ddprun {

// Sizes of a tensor's dimensions, outermost first; empty for a scalar. At most max_rank of them, kept inline: more is
// Errc::usage. A value.
class Shape {
 public:
  static constexpr std::size_t max_rank = 6;
  using value_type = std::int64_t;
  using iterator = std::int64_t*;
  using const_iterator = const std::int64_t*;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  Shape(const std::vector<std::int64_t>& sizes) : Shape(sizes.begin(), sizes.end()) {}  // NOLINT: a shape is a list
  template <std::forward_iterator It>
  Shape(It first, It last) : rank_(checked_rank(std::distance(first, last))) {
    std::copy(first, last, sizes_.begin());
  }
  // Returns a shape of so many dimensions of one size.
  static Shape filled(std::size_t rank, std::int64_t size);

  std::size_t size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t& operator[](std::size_t at) { return sizes_[at]; }
  const std::int64_t& operator[](std::size_t at) const { return sizes_[at]; }
  std::int64_t& back() { return sizes_[rank_ - 1]; }
  const std::int64_t& back() const { return sizes_[rank_ - 1]; }
  iterator begin() { return sizes_.data(); }
  iterator end() { return sizes_.data() + rank_; }
  const_iterator begin() const { return sizes_.data(); }
  const_iterator end() const { return sizes_.data() + rank_; }
  auto rbegin() const { return std::make_reverse_iterator(end()); }
  auto rend() const { return std::make_reverse_iterator(begin()); }

  void push_back(std::int64_t size);
  void erase(std::size_t at);
  void insert(std::size_t at, std::int64_t size);

  std::vector<std::int64_t> to_vector() const { return {begin(), end()}; }
  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  static std::size_t checked_rank(std::ptrdiff_t rank);

  std::array<std::int64_t, max_rank> sizes_{};
  std::size_t rank_ = 0;
};

// Distances between neighbours along each dimension, in elements.
using Strides = Shape;

// Returns the number of elements; 1 for a scalar. Throws Errc::usage for a negative size.
std::int64_t numel(const Shape& shape);

// Returns the strides of row-major memory: the last dimension is dense.
Strides contiguous_strides(const Shape& shape);

// Returns the shape to which both are broadcast by NumPy's rules: aligned at the last dimension, sizes equal or one of
// them 1. Throws Errc::mismatch naming the operation and both shapes.
Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b);

// Returns a dimension's number from 0; a negative dim counts from the end. Throws Errc::usage naming the operation.
std::size_t checked_dim(const char* operation, std::int64_t dim, std::size_t rank);

// Returns a text such as "[64, 1, 28, 28]".
std::string to_string(const Shape& shape);

}  // namespace ddprun
