#pragma once

#include <cstdint>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"
#include "worker/nn/layers/mixture_of_experts.h"
#include "worker/parallel/mesh/counted_group.h"

namespace ddprun {

// The rows exchanged by ranks that shard the experts of a layer: rank r has the r-th equal part of them.
struct ExpertRoutes {
  nn::ExpertCounts own;             // rows of all ranks for each of this rank's experts
  Counts sent, received;            // rows to and from each rank
  std::vector<std::size_t> places;  // the first row, among those ordered by expert, of what rank r has sent for expert
                                    // e: places[r * experts + e]
  std::vector<std::size_t> counts;  // the number of these rows, at the same index
};

// The exchanges of tokens among the ranks of an axis, of which each has some of the experts of each layer (expert
// parallelism). The bytes of a CountedGroup are those sent to other ranks.
//
// Threads: one at a time for a group. All functions that take a group are collective. Errors: those of the group.

// counts: this rank's rows for each expert, of all ranks' experts. Returns the rows of each rank for each of this
// rank's experts: by rank, and within it by expert. REQUIRES: a multiple of the ranks.
nn::ExpertCounts exchange_counts(const nn::ExpertCounts& counts, CountedGroup& group);
// Returns the routes for what exchange_counts() takes and returns. Pure.
ExpertRoutes routes_of(const nn::ExpertCounts& counts, const nn::ExpertCounts& received, int ranks);
// Sends this rank's rows, (n, width) ordered by expert, to the ranks of their experts. Returns the rows of this
// rank's experts from all ranks, ordered by expert and then by rank.
Tensor to_experts(const Tensor& rows, const ExpertRoutes& routes, CountedGroup& group);
// The inverse of to_experts().
Tensor from_experts(const Tensor& rows, const ExpertRoutes& routes, CountedGroup& group);

// The same exchanges, differentiable: each is the other's backward pass. All ranks take part in both passes, no matter
// what requires a gradient there. The group outlives the tape.
Variable send_to_experts(const Variable& rows, const ExpertRoutes& routes, CountedGroup& group);
Variable return_from_experts(const Variable& rows, const ExpertRoutes& routes, CountedGroup& group);

}  // namespace ddprun
