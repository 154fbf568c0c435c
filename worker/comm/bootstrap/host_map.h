#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddprun::comm {

// Maps the ranks of a group to hosts. Hosts are numbered by their lowest ranks, local ranks by rank. A plain value, the
// same on every rank.
class HostMap {
 public:
  // evidence[r]: rank r's host_evidence().
  explicit HostMap(const std::vector<std::string>& evidence);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_on_.size()); }
  int host_of(int rank) const { return host_of_[index(rank)]; }
  int local_rank_of(int rank) const { return local_rank_of_[index(rank)]; }
  const std::vector<int>& ranks_on(int host) const { return ranks_on_[index(host)]; }
  int local_size(int host) const { return static_cast<int>(ranks_on(host).size()); }
  // The least and the largest number of ranks on a host.
  int smallest_host() const;
  int largest_host() const;
  // Returns whether all hosts have the same number of ranks, and the ranks of a host are consecutive.
  bool even_and_in_order() const;

 private:
  static std::size_t index(int value) { return static_cast<std::size_t>(value); }

  std::vector<int> host_of_, local_rank_of_;
  std::vector<std::vector<int>> ranks_on_;
};

}  // namespace ddprun::comm
