#pragma once

#include <chrono>
#include <cstdint>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"

namespace ddprun {

// The ranks that compute the layers of one model together (tensor parallelism), and what they have exchanged.
//
// Ownership: the group outlives this object, which outlives the tapes of the operations below.
// Threads: one at a time. The methods are collective. Errors: those of the group.
class TensorGroup {
 public:
  explicit TensorGroup(ProcessGroup& group) : group_(group) {}

  ProcessGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // The first three return new tensors: this one the sum over all ranks.
  Tensor sum(const Tensor& tensor);
  // (batch, time / ranks, ...) -> (batch, time, ...): all ranks' positions; and back: the ranks' sum at own positions.
  Tensor gather_positions(const Tensor& own);
  Tensor sum_positions(const Tensor& all);
  // Returns this rank's positions of such a tensor; nothing is communicated.
  Tensor own_positions(const Tensor& all) const;
  void reduce(std::vector<double>& values, ReduceOp op);

  // The memory of all allreduces so far; a gather or a sum of positions counts as half of one, as it costs half.
  std::uint64_t bytes() const { return bytes_; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  template <class Collective>
  void run(std::size_t bytes, Collective collective);

  ProcessGroup& group_;
  std::uint64_t bytes_ = 0;
  std::chrono::nanoseconds waited_{};
};

// Differentiable collectives; each pair are each other's backward pass (Shoeybi et al., "Megatron-LM", 2019: f and g).
// All ranks call them in the same order, and have the same tape.

// Returns the same value, which each rank uses for its part; the gradient is the sum of all ranks'.
Variable copy_to_group(const Variable& input, TensorGroup& group);
// Returns the sum of all ranks' values, the same at each; the gradient, the same at each, is passed on.
Variable reduce_from_group(const Variable& input, TensorGroup& group);

// The pair around layers that all ranks compute alike, for ranks that have positions of everything else: the gradient,
// which is whole and the same at each, is not summed. They are each other's backward pass.
// (batch, time / ranks, width) -> (batch, time, width), and back.
Variable all_positions(const Variable& input, TensorGroup& group);
Variable own_positions(const Variable& input, TensorGroup& group);

// The pair for ranks that each have a range of the positions of everything that is not divided (sequence parallelism:
// Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022). They are each other's
// backward pass. Errc::usage for a number of positions that the ranks do not divide.
// (batch, time / ranks, width) -> (batch, time, width)
Variable gather_from_sequence(const Variable& input, TensorGroup& group);
// (batch, time, width) -> (batch, time / ranks, width): this rank's part of the sum of all ranks' inputs.
Variable reduce_to_sequence(const Variable& input, TensorGroup& group);

}  // namespace ddprun
