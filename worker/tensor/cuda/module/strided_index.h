#pragma once

#include <array>
#include <cstdint>

#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/cuda/module/divider.h"

namespace ddprun::cuda {

// Finds the elements of several strided operands of one shape by their number in row-major order. Neighbouring
// dimensions that are dense among themselves in every operand are merged first. It is passed to kernels by value.
template <int operands>
struct StridedIndex {
  int rank = 0;
  Divider sizes[View::max_rank];
  std::int64_t strides[operands][View::max_rank];

  // views[0] has the shape; all have their strides.
  explicit StridedIndex(const std::array<const View*, operands>& views) {
    for (int dim = 0; dim < views[0]->rank; ++dim) {
      const auto at = static_cast<std::size_t>(dim);
      if (views[0]->shape[at] != 1) append(views[0]->shape[at], views, at);
    }
  }

  // True when the elements of each operand lie one after the other.
  bool dense() const {
    if (rank > 1) return false;
    for (int t = 0; t < operands; ++t)
      if (rank == 1 && strides[t][0] != 1) return false;
    return true;
  }

  DDPRUN_HOST_DEVICE void locate(std::int64_t element, std::int64_t (&offsets)[operands]) const {
    for (int t = 0; t < operands; ++t) offsets[t] = 0;
    for (int dim = rank - 1; dim >= 0; --dim) {
      const std::int64_t rest = dim > 0 ? sizes[dim].quotient(element) : 0;
      const std::int64_t here = element - rest * sizes[dim].divisor();
      for (int t = 0; t < operands; ++t) offsets[t] += here * strides[t][dim];
      element = rest;
    }
  }

 private:
  void append(std::int64_t size, const std::array<const View*, operands>& views, std::size_t at) {
    bool merges = rank > 0;
    for (int t = 0; t < operands && merges; ++t)
      merges = strides[t][rank - 1] == views[static_cast<std::size_t>(t)]->strides[at] * size;
    if (merges)
      size *= sizes[rank - 1].divisor();
    else
      ++rank;
    sizes[rank - 1] = Divider(size);
    for (int t = 0; t < operands; ++t) strides[t][rank - 1] = views[static_cast<std::size_t>(t)]->strides[at];
  }
};

}  // namespace ddprun::cuda
