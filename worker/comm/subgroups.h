#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/worker/comm/process_group.h"

// Groups of some of a group's ranks, beside it and beside each other, of the same back end. Every rank of the parent
// calls these, in the same order as its operations; they block until the new group stands. What the parent fails with
// meanwhile ends that; a subgroup that stands lives on its own, but its store is reached as the parent's is.
namespace ddprun {

// Ranks of one colour form a group, ordered by key, then by their rank in the parent. No colour: no group, and nullptr.
std::unique_ptr<ProcessGroup> split(ProcessGroup& parent, std::optional<std::int64_t> colour, std::int64_t key);

// The listed ranks form a group; their order in the list is that of the new ranks. nullptr at the others. Errc::usage
// for a list that is empty, names a rank twice or one that there is not; Errc::mismatch naming two ranks, at all of
// them, when not all pass the same list.
std::unique_ptr<ProcessGroup> subgroup(ProcessGroup& parent, const std::vector<int>& ranks);

namespace comm {

// What a rank asks split() for.
struct SplitWish {
  std::optional<std::int64_t> colour;
  std::int64_t key = 0;
};
// The ranks of rank's new group, in their new order; none without a colour. wishes: by rank.
std::vector<int> ranks_of_colour(const std::vector<SplitWish>& wishes, int rank);

// Throws Errc::usage.
void check_ranks(const std::vector<int>& ranks, int size);

}  // namespace comm
}  // namespace ddprun
