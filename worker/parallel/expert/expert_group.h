#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"
#include "worker/nn/layers/mixture_of_experts.h"

namespace ddprun {

// The rows exchanged by ranks of a group that divide the experts of a layer: rank r has the r-th equal part of them.
struct ExpertRoutes {
  nn::ExpertCounts own;             // rows of all ranks for each of this rank's experts
  Counts sent, received;            // rows to and from each rank
  std::vector<std::size_t> places;  // the first row, among those ordered by expert, of what rank r has sent for expert
                                    // e: places[r * experts + e]
  std::vector<std::size_t> counts;  // the number of these rows, at the same index
};

// The ranks that divide the experts of each layer (expert parallelism), and what they have exchanged.
//
// Ownership: the group outlives this object, which outlives the tapes of the operations below.
// Threads: one at a time. The methods are collective. Errors: those of the group.
class ExpertGroup {
 public:
  explicit ExpertGroup(ProcessGroup& group) : group_(group) {}

  ProcessGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // counts: this rank's rows for each expert, of all ranks' experts. REQUIRES: the ranks divide their number.
  ExpertRoutes routes(const nn::ExpertCounts& counts);
  // Sends this rank's rows, (n, width) ordered by expert, to the ranks of their experts. Returns the rows of this
  // rank's experts from all ranks, ordered by expert and then by rank.
  Tensor to_experts(const Tensor& rows, const ExpertRoutes& routes);
  // The inverse of to_experts().
  Tensor from_experts(const Tensor& rows, const ExpertRoutes& routes);

  // The number of bytes sent to other ranks by this one so far.
  std::uint64_t bytes() const { return bytes_; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  Tensor exchange(const Tensor& rows, const Counts& sent, const Counts& received);

  ProcessGroup& group_;
  std::uint64_t bytes_ = 0;
  std::chrono::nanoseconds waited_{};
};

// The same exchanges, differentiable: each is the other's backward pass. All ranks take part in both passes, no matter
// what requires a gradient there.
Variable send_to_experts(const Variable& rows, const ExpertRoutes& routes, ExpertGroup& group);
Variable return_from_experts(const Variable& rows, const ExpertRoutes& routes, ExpertGroup& group);

}  // namespace ddprun
