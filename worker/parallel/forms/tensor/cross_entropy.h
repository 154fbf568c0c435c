#pragma once

#include "worker/parallel/forms/tensor/collectives.h"

namespace ddprun {

// cross_entropy() of scores of which each rank has the classes of a VocabularyParallelHead: scores (batch, classes /
// ranks), targets (batch) int64, the same at every rank, among all classes. Ranks exchange three numbers a row; no rank
// has all scores. The result is the same at every rank.
// Collective, forward; the group outlives the tape. Threads: one at a time for a group.
// Errors: Errc::mismatch for shapes that do not fit, Errc::usage for a target outside of the classes;
// those of the group.
Variable vocabulary_parallel_cross_entropy(const Variable& scores, const Tensor& targets, CountedGroup& group,
                                           std::int64_t ignore_index = -100);

}  // namespace ddprun
