#pragma once

#include <vector>

#include "worker/comm/process_group.h"
#include "worker/tensor/tensor.h"

namespace ddprun::trainer {

// Gives the ranks that lag the values of the others, which are the same at all of these: each of them sends an equal
// share, or one of them all in a group of back end shm. Every rank passes tensors of the same sizes in the same order.
// Throws what the group throws; the tensors of a rank that lags then have values of both. Collective.
//
// Ownership: tensors and group are the caller's. Threads: one at a time.
void transfer_tensors(const std::vector<Tensor>& tensors, ProcessGroup& group, const std::vector<int>& lagging);

}  // namespace ddprun::trainer
