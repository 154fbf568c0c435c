#pragma once

#include <nccl.h>
#include <optional>
#include <vector>

// Functions that decide when a communicator can be made from another one by ncclCommShrink. Pure functions.
namespace ddprun::comm {

// True if the headers of this build have the functions. The library at run time may be another version.
#define DDPRUN_NCCL_HAS_SCALABLE (NCCL_VERSION_CODE >= 22304)
#define DDPRUN_NCCL_HAS_SHRINK (NCCL_VERSION_CODE >= 22703)
#ifdef NCCL_REVOKE_DEFAULT
#define DDPRUN_NCCL_HAS_REVOKE 1
#else
#define DDPRUN_NCCL_HAS_REVOKE 0
#endif

constexpr bool version_has_shrink(int version) {
  return version >= 22703;
}

// Returns the ranks of a group of previous_size to exclude, so that new rank r is what was rank kept[r] (-1: a new
// member); none where shrinking cannot give that: there is a new member, no member has left, or the order differs.
std::optional<std::vector<int>> ranks_to_exclude(int previous_size, const std::vector<int>& kept);

}  // namespace ddprun::comm
