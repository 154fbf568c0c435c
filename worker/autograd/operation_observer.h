#pragma once

#include <string>
#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun::autograd {

// Observes the operations of a thread while they run, for a profiler. Calls nest: a checkpointed function runs
// forward operations within a backward one. No method throws.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;

  // An operation begins to compute its result, in the module current_scope(). name lives for ever.
  virtual void forward_begins(const char* name) = 0;
  // The result has been computed. Returns its cost in floating-point operations, 0 if that is not counted; the backward
  // pass passes it to backward_begins().
  virtual double result_computed(const char* name, const std::vector<Variable>& inputs, const Tensor& result) = 0;
  virtual void forward_ends() = 0;

  // wanted: how many of the first two inputs get a gradient.
  virtual void backward_begins(const char* name, const std::string& module, double forward_cost, int wanted) = 0;
  virtual void backward_ends() = 0;
};

// While one exists on a thread, the observer, which outlives it, observes the operations there. Without one, an
// operation tests a pointer of its thread. Destroyed between operations, not within one.
class ObservationScope {
 public:
  explicit ObservationScope(OperationObserver& observer);
  ~ObservationScope();
  ObservationScope(const ObservationScope&) = delete;
  ObservationScope& operator=(const ObservationScope&) = delete;

 private:
  OperationObserver* before_;
};

}  // namespace ddprun::autograd
