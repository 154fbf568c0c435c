#include "worker/comm/bootstrap/host_map.h"

#include <algorithm>
#include <map>

namespace ddprun::comm {

HostMap::HostMap(const std::vector<std::string>& evidence) {
  std::map<std::string, int> known;
  for (int rank = 0; rank < static_cast<int>(evidence.size()); ++rank) {
    const auto [host, added] = known.emplace(evidence[index(rank)], hosts());
    if (added) ranks_on_.emplace_back();
    auto& local_ranks = ranks_on_[index(host->second)];
    host_of_.push_back(host->second);
    local_rank_of_.push_back(static_cast<int>(local_ranks.size()));
    local_ranks.push_back(rank);
  }
}

int HostMap::smallest_host() const {
  int least = ranks();
  for (const auto& each : ranks_on_) least = std::min(least, static_cast<int>(each.size()));
  return least;
}

int HostMap::largest_host() const {
  int most = 0;
  for (const auto& each : ranks_on_) most = std::max(most, static_cast<int>(each.size()));
  return most;
}

bool HostMap::even_and_in_order() const {
  return smallest_host() == largest_host() && std::is_sorted(host_of_.begin(), host_of_.end());
}

}  // namespace ddprun::comm
