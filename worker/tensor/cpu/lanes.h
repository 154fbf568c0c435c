#pragma once

#include <cstdint>

namespace ddprun::cpu {

// Sums in sixteen interleaved lanes: a fixed order that fits every vector width, and rounds less than one running sum.
inline constexpr std::int64_t lane_count = 16;

// Returns the sum of term(0) .. term(count - 1).
template <class T, class Term>
[[gnu::always_inline]] inline T lane_sum(std::int64_t count, Term term) {
  T lanes[lane_count] = {};
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count) {
    for (std::int64_t lane = 0; lane < lane_count; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  for (std::int64_t half = lane_count / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace ddprun::cpu
