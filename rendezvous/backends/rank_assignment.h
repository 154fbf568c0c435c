#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Who gets which group rank: a pure function, so that every rule can be tested by itself.
namespace ddprun {

struct RankCandidate {
  std::string host;
  std::uint64_t arrival = 0;         // order of joining; decides between nodes of one host
  std::optional<int> previous_rank;  // of a node that had one
  std::optional<int> wished_rank;    // --node_rank
};

// Group ranks 0 .. n-1, one for each of the n candidates, in their order:
//   1. a previous rank is kept where it is below n and nobody earlier in the list has it,
//   2. then wishes are granted where the rank is still free, first come first served,
//   3. the rest fill the holes: nodes that lost a rank first, in order of that rank, then new ones in natural order of
//   host.
std::vector<int> assign_group_ranks(const std::vector<RankCandidate>& candidates);

// Digits compare as numbers: node2 before node10. Negative, zero or positive.
int natural_compare(std::string_view a, std::string_view b);

}  // namespace ddprun
