#include "worker/comm/backends/nccl/shrink.h"

#include <algorithm>
#include <functional>

namespace ddprun::comm {

std::optional<std::vector<int>> ranks_to_exclude(int previous_size, const std::vector<int>& kept) {
  const auto out_of_order = std::adjacent_find(kept.begin(), kept.end(), std::greater_equal<>());
  if (kept.empty() || kept.front() < 0 || out_of_order != kept.end()) return std::nullopt;
  std::vector<int> excluded;
  for (int rank = 0; rank < previous_size; ++rank) {
    if (!std::binary_search(kept.begin(), kept.end(), rank)) excluded.push_back(rank);
  }
  if (excluded.empty()) return std::nullopt;
  return excluded;
}

}  // namespace ddprun::comm
