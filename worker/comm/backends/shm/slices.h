#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "common/dtype.h"
#include "common/rounding.h"
#include "worker/comm/backends/shm/segment_layout.h"

namespace ddprun::comm {

// Divides by a shift, because a division by a size that is only known at run time is noticeable in small operations.
inline std::size_t elements_in(std::size_t bytes, DType dtype) {
  return bytes >> std::countr_zero(size_of(dtype));
}

// Elements [begin, end) of a buffer.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

// The slice of count elements that a rank reduces in an allreduce: whole cache lines except for the last slice, empty
// where there are too few.
inline Slice slice_of_rank(std::size_t count, DType dtype, int ranks, int rank) {
  const auto parts = static_cast<std::size_t>(ranks);
  const auto lines = divide_up(count * size_of(dtype), cache_line_bytes);
  const auto share = elements_in(divide_up(lines, parts) * cache_line_bytes, dtype);
  const auto begin = std::min(count, static_cast<std::size_t>(rank) * share);
  return {begin, std::min(count, begin + share)};
}

}  // namespace ddprun::comm
