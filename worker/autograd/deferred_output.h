#pragma once

#include "ddprun/worker/autograd/variable.h"

namespace ddprun::autograd {

// While one exists on a thread, an output layer that computes linear(input, weight) of a whole weight, and of which
// nobody but the caller of the model sees the scores, may leave that to the caller: it gives its input in their place,
// and its weight here.
//
// Threads: of the thread that made it. The innermost scope counts.
class DeferredOutput {
 public:
  // wanted: false: nothing is left to the caller.
  explicit DeferredOutput(bool wanted);
  ~DeferredOutput();
  DeferredOutput(const DeferredOutput&) = delete;
  DeferredOutput& operator=(const DeferredOutput&) = delete;

  // Undefined where the model gave scores.
  const Variable& weight() const { return weight_; }

  // By the layer. True: it gives its input.
  static bool take(const Variable& weight);

 private:
  bool wanted_;
  Variable weight_;
  DeferredOutput* before_;
};

}  // namespace ddprun::autograd
