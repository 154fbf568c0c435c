#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddprun {

// The steps after which the fragments of a model are averaged: each once in a period, at equal distances, so that a
// step exchanges at most one of them (Douillard et al., "Streaming DiLoCo with overlapping communication", 2025). A
// fragment's average is used some steps after it has begun.
//
// Steps count from 1. Pure functions.
struct FragmentSchedule {
  std::int64_t period = 1;
  std::int64_t fragments = 1;  // at most period
  std::int64_t delay = 0;      // below period

  // Returns the fragment, from 0, whose average begins after that step, and the one whose average is used after it.
  std::optional<std::int64_t> begins_after(std::int64_t step) const;
  std::optional<std::int64_t> ends_after(std::int64_t step) const;
};

// Returns the fragment of each tensor: fragments are tensors that follow one another, of about as many bytes each.
// Fragments may remain empty if tensors are large.
std::vector<std::int64_t> fragments_of(const std::vector<std::size_t>& bytes, std::int64_t fragments);

}  // namespace ddprun
