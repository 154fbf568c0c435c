#pragma once

#include <cstdint>

#include "worker/tensor/cuda/module/device.h"
#include "worker/tensor/cuda/module/divider.h"

// Orders the sources of each place so that a result that is added up from several is the same in every run.
namespace ddprun::cuda {

// The place where source `at` goes: index[at], or a place in (outer, n, inner) where the index has (outer, j, inner).
struct Destination {
  std::int64_t n;
  Divider inner, per_outer;  // per_outer: j * inner

  DDPRUN_HOST_DEVICE std::int64_t of(std::int64_t at, std::int64_t chosen) const {
    const std::int64_t outer = per_outer.quotient(at);
    const std::int64_t column = at - inner.quotient(at) * inner.divisor();
    return (outer * n + chosen) * inner.divisor() + column;
  }
};

// The sources of an index in the order of their destinations, equal ones as they were.
class SortedIndex {
 public:
  // REQUIRES: count > 0 and is_sortable(count, destinations)
  SortedIndex(DeviceContext& device, std::int64_t count, std::int64_t destinations, const std::int64_t* index,
              const Destination& destination);

  // Numbers of 32 bits are sorted: half the memory of 64.
  static bool is_sortable(std::int64_t count, std::int64_t destinations);

  const std::uint32_t* destinations() const { return keys_[current_].data<std::uint32_t>(); }
  const std::uint32_t* sources() const { return sources_[current_].data<std::uint32_t>(); }

 private:
  Scratch keys_[2], sources_[2];
  int current_ = 0;
};

}  // namespace ddprun::cuda
