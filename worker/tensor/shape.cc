#include "worker/tensor/shape.h"

#include <fmt/format.h>

#include "common/error.h"

namespace ddprun {

Shape Shape::filled(std::size_t rank, std::int64_t size) {
  Shape shape;
  shape.rank_ = checked_rank(static_cast<std::ptrdiff_t>(rank));
  std::fill(shape.begin(), shape.end(), size);
  return shape;
}

std::size_t Shape::checked_rank(std::ptrdiff_t rank) {
  if (rank <= static_cast<std::ptrdiff_t>(max_rank)) return static_cast<std::size_t>(rank);
  throw make_error(Errc::usage, "a shape of {} dimensions: a tensor has at most {}", rank, max_rank);
}

void Shape::push_back(std::int64_t size) {
  insert(rank_, size);
}

void Shape::erase(std::size_t at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --rank_;
}

void Shape::insert(std::size_t at, std::int64_t size) {
  rank_ = checked_rank(static_cast<std::ptrdiff_t>(rank_ + 1));
  std::copy_backward(begin() + at, end() - 1, end());
  sizes_[at] = size;
}

std::int64_t numel(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) {
    if (size < 0) throw make_error(Errc::usage, "a shape has a negative size: {}", to_string(shape));
    count *= size;
  }
  return count;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Shape::filled(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const std::size_t lead = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& size = result[lead + i];
    if (size == shorter[i] || shorter[i] == 1) continue;
    if (size != 1) {
      throw make_error(Errc::mismatch, "{}: shapes {} and {} cannot be broadcast to one", operation, to_string(a),
                       to_string(b));
    }
    size = shorter[i];
  }
  return result;
}

std::size_t checked_dim(const char* operation, std::int64_t dim, std::size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  const std::int64_t index = dim < 0 ? dim + count : dim;
  if (index >= 0 && index < count) return static_cast<std::size_t>(index);
  throw make_error(Errc::usage, "{}: a tensor of {} dimensions has no dimension {}", operation, rank, dim);
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ddprun
