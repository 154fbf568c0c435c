#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The assignment of group ranks, as a pure function.
namespace ddprun {

struct RankCandidate {
  std::string host;
  std::uint64_t arrival = 0;          // order of joining; breaks ties between nodes of one host
  std::optional<int> previous_rank;   // the rank in an earlier round
  std::optional<int> requested_rank;  // --node_rank
};

// One group rank from 0 to n-1 for each of the n candidates, in the order given:
//   1. a previous rank below n is kept, unless an earlier candidate has it,
//   2. a requested rank is granted if it is still free, in the order given,
//   3. the free ranks go to the rest: first to nodes that had a higher rank, by that rank, then to new nodes in natural
//      order of their host names.
std::vector<int> assign_group_ranks(const std::vector<RankCandidate>& candidates);

// Compares digits as numbers: node2 is before node10. Returns a negative, zero or positive number, as strcmp() does.
int natural_compare(std::string_view a, std::string_view b);

}  // namespace ddprun
