#pragma once

#include <vector>

#include "worker/autograd/variable.h"
#include "worker/parallel/mesh/counted_group.h"

// The exchanges of ranks that compute the layers of one model together (tensor parallelism).
//
// Threads: one at a time for a group. All functions are collective. Errors: those of the group.
namespace ddprun {

// Returns a new tensor: the sum over all ranks.
Tensor sum_over(CountedGroup& group, const Tensor& tensor);
void reduce_over(CountedGroup& group, std::vector<double>& values, ReduceOp op);

// Differentiable collectives; each pair are each other's backward pass (Shoeybi et al., "Megatron-LM", 2019: f and g).
// All ranks call them in the same order, and have the same tape. The group outlives the tape.

// Returns the same value, which each rank uses for its part; the gradient is the sum of all ranks'.
Variable copy_to_group(const Variable& input, CountedGroup& group);
// Returns the sum of all ranks' values, the same at each; the gradient, the same at each, is passed on.
Variable reduce_from_group(const Variable& input, CountedGroup& group);

// The pair around layers that all ranks compute alike, for ranks that have positions of everything else: the gradient,
// which is whole and the same at each, is not summed. They are each other's backward pass.
// (batch, time / ranks, width) -> (batch, time, width), and back.
Variable all_positions(const Variable& input, CountedGroup& group);
Variable own_positions(const Variable& input, CountedGroup& group);

// The pair for ranks that each have a range of the positions of everything that is not sharded (sequence parallelism:
// Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022). They are each other's
// backward pass. Errc::usage for a number of positions that is no multiple of the ranks.
// (batch, time / ranks, width) -> (batch, time, width)
Variable gather_from_sequence(const Variable& input, CountedGroup& group);
// (batch, time, width) -> (batch, time / ranks, width): this rank's part of the sum of all ranks' inputs.
Variable reduce_to_sequence(const Variable& input, CountedGroup& group);

}  // namespace ddprun
