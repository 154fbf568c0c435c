#pragma once

#include <nccl.h>
#include <optional>
#include <vector>

// When a communicator may be made of another one by leaving ranks out. Pure decisions.
namespace ddprun::comm {

// What this is compiled with may have them, and what it runs with may be another version.
#define DDPRUN_NCCL_HAS_SHRINK (NCCL_VERSION_CODE >= 22703)
#ifdef NCCL_REVOKE_DEFAULT
#define DDPRUN_NCCL_HAS_REVOKE 1
#else
#define DDPRUN_NCCL_HAS_REVOKE 0
#endif

constexpr bool knows_shrink(int version) {
  return version >= 22703;
}

// The ranks of a group of size_before that are to be left out, so that new rank r is what was rank kept[r] (-1:
// nobody). None where that is no shrinking: somebody has come, nobody has gone, or the order is another.
std::optional<std::vector<int>> ranks_to_exclude(int size_before, const std::vector<int>& kept);

}  // namespace ddprun::comm
