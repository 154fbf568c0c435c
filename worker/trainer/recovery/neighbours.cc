#include "worker/trainer/recovery/neighbours.h"

#include <cstddef>
#include <set>

namespace ddprun::trainer {

Neighbours neighbours_of(int rank, const std::vector<std::string>& hosts) {
  const auto ranks = hosts.size();
  std::size_t distance = 1, fewest = ranks + 1;
  for (std::size_t candidate = 1; candidate < ranks; ++candidate) {
    std::size_t on_same_host = 0;
    for (std::size_t r = 0; r < ranks; ++r) on_same_host += hosts[r] == hosts[(r + candidate) % ranks] ? 1 : 0;
    if (on_same_host >= fewest) continue;
    fewest = on_same_host;
    distance = candidate;
  }
  const auto own = static_cast<std::size_t>(rank);
  return {.keeper = static_cast<int>((own + distance) % ranks),
          .kept = static_cast<int>((own + ranks - distance % ranks) % ranks)};
}

std::vector<int> heirs_of(const std::vector<int>& parts, const std::vector<bool>& stays) {
  std::vector<int> heirs(parts.size(), -1), staying;
  std::set<int> known;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (!stays[rank]) continue;
    staying.push_back(static_cast<int>(rank));
    known.insert(parts[rank]);
  }
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < parts.size() && !staying.empty(); ++rank)
    if (known.insert(parts[rank]).second) heirs[rank] = staying[next++ % staying.size()];
  return heirs;
}

}  // namespace ddprun::trainer
