#pragma once

#include <atomic>
#include <nccl.h>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/store/store.h"
#include "worker/comm/operations/call.h"

// The ids by which the ranks of a communicator find each other. NCCL serves each from the process that made it, so that
// one id for thousands of ranks makes one process slow.
namespace ddprun::comm {

// The ranks that make an id, in the order of the ids: the first of each share of ranks, where NCCL divides the ranks
// among the ids evenly. A pure function.
std::vector<int> makers_of_ids(int size, int ranks_per_id);

// Returns the ids of a communicator, the same at every rank: makes one if this rank has to, and waits for the others'.
// There is one where the library cannot take several. device: the one that an error names. Throws what await_ranks()
// and make_unique_id() throw.
std::vector<ncclUniqueId> agree_on_ids(Store& store, const std::string& prefix, RankInfo rank_info, int device,
                                       int ranks_per_id, const std::atomic<bool>& interrupted, Deadline deadline);

}  // namespace ddprun::comm
