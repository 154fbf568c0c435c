#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"

// Groups of some of a group's ranks, of the same back end, like those of MPI_Comm_split and MPI_Comm_create. Every rank
// of the parent calls these functions, in order with the parent's operations; they block until the new group has
// formed, and fail when the parent fails before that. Afterwards the subgroup is independent of the parent, except that
// it uses the parent's connect_store.
namespace ddprun {

// The ranks of one colour form a group, ordered by key, then by parent rank. A rank without a colour gets nullptr.
std::unique_ptr<ProcessGroup> split(ProcessGroup& parent, std::optional<std::int64_t> colour, std::int64_t key);

// The listed ranks form a group; their position in the list is their new rank. The others get nullptr. Throws
// Errc::usage for a list that is empty, names a rank twice or an invalid rank; Errc::mismatch at all ranks, naming two
// of them, when not all pass the same list.
std::unique_ptr<ProcessGroup> subgroup(ProcessGroup& parent, const std::vector<int>& ranks);

namespace comm {

// A rank's arguments to split().
struct SplitRequest {
  std::optional<std::int64_t> colour;
  std::int64_t key = 0;
};
// The ranks of rank's new group, in their new order; empty without a colour. requests: by rank.
std::vector<int> ranks_of_colour(const std::vector<SplitRequest>& requests, int rank);

// Throws Errc::usage for a list that forms no group of size's ranks.
void check_ranks(const std::vector<int>& ranks, int size);

}  // namespace comm
}  // namespace ddprun
