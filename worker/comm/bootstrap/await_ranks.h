#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/store/store.h"

namespace ddprun::comm {

// A key of the store that a rank sets when it joins the group.
struct RankKey {
  int rank = 0;
  std::string key;
};

// Waits for all keys and returns their values. Throws Errc::timeout naming the ranks (of size) that did not join, and
// Errc::aborted soon after interrupted was set.
std::vector<std::string> await_ranks(Store& store, const std::vector<RankKey>& keys, int size,
                                     const std::atomic<bool>& interrupted, Deadline deadline);

// An allgather through the store: sets own under prefix + rank, and returns the values of all ranks. Throws what
// await_ranks() throws.
std::vector<std::string> exchange(Store& store, const std::string& prefix, int rank, int size, const std::string& own,
                                  const std::atomic<bool>& interrupted, Deadline deadline);

}  // namespace ddprun::comm
