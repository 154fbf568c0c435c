#pragma once

#include "worker/comm/process_group.h"
#include "worker/parallel/mesh/counted_group.h"
#include "worker/tensor/tensor.h"

namespace ddprun {

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
  RingShift(CountedGroup& group, const Tensor& tensor, Kind kind);
  ~RingShift();
  RingShift(const RingShift&) = delete;
  RingShift& operator=(const RingShift&) = delete;

  // Returns what the rank before has sent. To be called once.
  Tensor take();

 private:
  void abandon();

  CountedGroup& group_;
  const Tensor sent_;
  Tensor received_;
  WorkPtr receive_, send_;
};

}  // namespace ddprun
