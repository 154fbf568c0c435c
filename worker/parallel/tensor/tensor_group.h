#pragma once

#include <chrono>
#include <cstdint>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/comm/process_group.h"

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

  // A new tensor: the sum over all ranks.
  Tensor sum(const Tensor& tensor);
  void reduce(std::vector<double>& values, ReduceOp op);

  // Handed to allreduces so far.
  std::uint64_t elements() const { return elements_; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  template <class Operation>
  void run(std::size_t elements, Operation operation);

  ProcessGroup& group_;
  std::uint64_t elements_ = 0;
  std::chrono::nanoseconds waited_{};
};

// Differentiable collectives, which take each other's place in the backward pass (Shoeybi et al., "Megatron-LM", 2019:
// f and g). All ranks call them in the same order, and have the same tape.

// The same value, which each rank goes on to use for its part; the gradient is the sum of all ranks'.
Variable copy_to_group(const Variable& input, TensorGroup& group);
// The sum of all ranks' values, the same at each; the gradient, the same at each, is passed on.
Variable reduce_from_group(const Variable& input, TensorGroup& group);

}  // namespace ddprun
