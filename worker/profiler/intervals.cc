#include "worker/profiler/intervals.h"

#include <algorithm>

namespace ddprun::profiler {

Intervals merged(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  Intervals apart;
  for (const auto& [begin, end] : intervals) {
    if (apart.empty() || begin > apart.back().second)
      apart.emplace_back(begin, end);
    else
      apart.back().second = std::max(apart.back().second, end);
  }
  return apart;
}

Time length(const Intervals& intervals) {
  Time sum{0};
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

Time common(const Intervals& one, const Intervals& other) {
  Time sum{0};
  auto a = one.begin(), b = other.begin();
  while (a != one.end() && b != other.end()) {
    sum += std::max(Time{0}, std::min(a->second, b->second) - std::max(a->first, b->first));
    ++(a->second < b->second ? a : b);
  }
  return sum;
}

}  // namespace ddprun::profiler
