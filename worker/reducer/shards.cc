#include "worker/reducer/shards.h"

#include <algorithm>

#include "common/rounding.h"

namespace ddprun {

Shard shard_of(std::size_t elements, int rank, int ranks) {
  constexpr std::size_t unit = 16;
  const auto n = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(rank);
  const std::size_t units = divide_up(elements, unit);
  const std::size_t size = divide_up(units, n) * unit;
  return {.begin = std::min(elements, r * size), .end = std::min(elements, (r + 1) * size)};
}

Counts shard_counts(std::size_t elements, int ranks) {
  Counts counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(shard_of(elements, rank, ranks).count());
  return counts;
}

Shard intersection(const Shard& a, const Shard& b) {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {.begin = begin, .end = std::max(begin, std::min(a.end, b.end))};
}

}  // namespace ddprun
