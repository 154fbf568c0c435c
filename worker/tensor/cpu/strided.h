#pragma once

#include <array>
#include <cstdint>

#include "worker/tensor/shape.h"

namespace ddprun::cpu {

// A loop over several strided tensors of one shape, as rows along the innermost dimension. Neighbouring dimensions that
// are dense among themselves in every tensor are merged first, so that contiguous tensors are a single row.
template <std::size_t N>
class StridedLoop {
 public:
  StridedLoop(const Shape& shape, const std::array<const Strides*, N>& strides) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 1) continue;
      std::array<std::int64_t, N> here;
      for (std::size_t t = 0; t < N; ++t) here[t] = (*strides[t])[i];
      if (rank_ > 0 && merges_into_last(shape[i], here)) {
        sizes_[rank_ - 1] *= shape[i];
        strides_[rank_ - 1] = here;
        continue;
      }
      sizes_[rank_] = shape[i];
      strides_[rank_++] = here;
    }
    if (rank_ == 0) {
      sizes_[0] = 1;
      strides_[0].fill(1);
      rank_ = 1;
    }
  }

  // Calls row(offsets, count, strides), offsets and strides in elements, by tensor.
  template <class Row>
  void for_each_row(Row row) const {
    std::array<std::int64_t, N> offsets{};
    walk(0, offsets, row);
  }

 private:
  bool merges_into_last(std::int64_t size, const std::array<std::int64_t, N>& inner) const {
    for (std::size_t t = 0; t < N; ++t)
      if (strides_[rank_ - 1][t] != inner[t] * size) return false;
    return true;
  }

  template <class Row>
  void walk(std::size_t dim, std::array<std::int64_t, N> offsets, Row& row) const {
    if (dim + 1 == rank_) {
      row(offsets, sizes_[dim], strides_[dim]);
      return;
    }
    for (std::int64_t i = 0; i < sizes_[dim]; ++i) {
      walk(dim + 1, offsets, row);
      for (std::size_t t = 0; t < N; ++t) offsets[t] += strides_[dim][t];
    }
  }

  std::size_t rank_ = 0;
  std::array<std::int64_t, Shape::max_rank> sizes_{};
  std::array<std::array<std::int64_t, N>, Shape::max_rank> strides_{};
};

}  // namespace ddprun::cpu
