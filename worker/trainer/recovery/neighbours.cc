#include "worker/trainer/recovery/neighbours.h"

#include <cstddef>

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

}  // namespace ddprun::trainer
