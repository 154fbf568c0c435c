#include "worker/trainer/recovery/positions.h"

#include <algorithm>

namespace ddprun::trainer {

std::optional<Catchup> compare_positions(std::span<const Position> positions) {
  const auto newest = std::ranges::max_element(positions);  // none compares less than any step
  if (newest == positions.end() || !*newest) return std::nullopt;
  Catchup catchup{.step = **newest, .source = static_cast<int>(newest - positions.begin()), .lagging = {}};
  for (int rank = 0; rank < static_cast<int>(positions.size()); ++rank)
    if (positions[static_cast<std::size_t>(rank)] != *newest) catchup.lagging.push_back(rank);
  return catchup;
}

}  // namespace ddprun::trainer
