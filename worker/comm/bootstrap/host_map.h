#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddprun::comm {

// Which ranks of a group run on which host. Hosts are numbered in the order of their lowest ranks, a host's ranks in
// their own order. A value, the same on every rank.
class HostMap {
 public:
  // evidence[r]: what tells rank r's host from others (host_evidence.h).
  explicit HostMap(const std::vector<std::string>& evidence);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_on_.size()); }
  int host_of(int rank) const { return host_of_[index(rank)]; }
  int local_rank_of(int rank) const { return local_rank_of_[index(rank)]; }
  const std::vector<int>& ranks_on(int host) const { return ranks_on_[index(host)]; }
  int local_size(int host) const { return static_cast<int>(ranks_on(host).size()); }
  int smallest_host() const;  // its number of ranks
  int largest_host() const;
  // Every host has as many ranks as the others, and they follow one another.
  bool even_and_in_order() const;

 private:
  static std::size_t index(int value) { return static_cast<std::size_t>(value); }

  std::vector<int> host_of_, local_rank_of_;
  std::vector<std::vector<int>> ranks_on_;
};

}  // namespace ddprun::comm
