#pragma once

#include <chrono>
#include <cstdint>

#include "worker/comm/process_group.h"
#include "worker/tensor/tensor.h"

namespace ddprun {

// The ranks that divide the positions of their samples (context parallelism), and what they have exchanged.
//
// Ownership: the group outlives this object, which outlives the tapes of the operations that use it.
// Threads: one at a time.
class ContextGroup {
 public:
  explicit ContextGroup(ProcessGroup& group) : group_(group) {}

  ProcessGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // (batch, time / ranks, width) -> (batch, time, width): all ranks' positions in their order; and back: the ranks' sum
  // at own positions (zigzag.h). Both are collective, and return new tensors.
  Tensor gather_positions(const Tensor& own);
  Tensor sum_positions(const Tensor& all);

  // The number of bytes sent by this rank so far.
  std::uint64_t bytes() const { return bytes_; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  friend class RingShift;
  template <class Collective>
  void run(std::size_t bytes, Collective collective);

  ProcessGroup& group_;
  std::uint64_t bytes_ = 0;
  std::chrono::nanoseconds waited_{};
};

// A tensor on its way to the next rank, and one of the same shape on its way from the rank before. The constructor
// starts both, and take() ends them; in between the rank computes. All ranks make the same shifts, those of a kind in
// the same order.
//
// The destructor aborts the group where take() was not called, and so does a constructor that throws: no other rank
// waits.
// Errors: those of the group.
class RingShift {
 public:
  enum class Kind { keys_and_values, gradients };

  // group outlives this object. tensor: contiguous; only read.
  RingShift(ContextGroup& group, const Tensor& tensor, Kind kind);
  ~RingShift();
  RingShift(const RingShift&) = delete;
  RingShift& operator=(const RingShift&) = delete;

  // Returns what the rank before has sent. To be called once.
  Tensor take();

 private:
  void abandon();

  ContextGroup& group_;
  const Tensor sent_;
  Tensor received_;
  WorkPtr receive_, send_;
};

}  // namespace ddprun
