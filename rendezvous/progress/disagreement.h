#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/progress/operation_description.h"

// Which ranks of a group are odd where not all call the same collective under one number. Values and pure functions.
namespace ddprun {

// The call of a rank under that number.
struct RankCall {
  std::string name;  // of the rank: "rank 2 (pid 42 on host b)"
  OperationDescription operation;
};

// Returns the ranks' calls, as indices in groups that agree: first the calls that the fewest ranks make, which are the
// odd ones, last the one that most of them make. Of groups of one size the one with the lowest rank comes first.
// calls: by rank, or of some of the ranks in their order.
std::vector<std::vector<std::size_t>> group_calls(const std::vector<RankCall>& calls);

// Returns whether calls of further ranks cannot change which of two calls is the odd one: all ranks' are known, or more
// than half of the ranks agree. size: of the group.
bool odd_ranks_are_known(const std::vector<RankCall>& calls, std::size_t size);

// Returns "the ranks disagree on operation #3: rank 2 (pid 42 on host b) calls barrier; rank 0 (pid 40 on host a) and 4
// others call allreduce(sum) of 10 float32", or an empty text if all calls agree. Begins with the odd ranks.
std::string disagreement_text(std::uint64_t sequence, const std::vector<RankCall>& calls);

}  // namespace ddprun
