#pragma once

#include "worker/autograd/variable.h"

namespace ddprun::autograd {

// While one exists on a thread, an output layer that computes linear(input, weight) of a whole weight, and whose scores
// nobody but the caller of the model sees, may leave that product to the caller: it returns its input instead of the
// scores, and passes its weight to this scope.
//
// Threads: an object is used and destroyed by the thread that made it. The innermost scope counts.
class DeferredOutput {
 public:
  // wanted: if false, nothing is left to the caller.
  explicit DeferredOutput(bool wanted);
  ~DeferredOutput();
  DeferredOutput(const DeferredOutput&) = delete;
  DeferredOutput& operator=(const DeferredOutput&) = delete;

  // The weight of the layer that left its product to the caller; undefined where the model returned scores.
  const Variable& weight() const { return weight_; }

  // Called by the layer. If it returns true, the layer returns its input.
  static bool take(const Variable& weight);

 private:
  bool wanted_;
  Variable weight_;
  DeferredOutput* before_;
};

}  // namespace ddprun::autograd
