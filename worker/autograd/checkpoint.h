#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun::autograd {

using CheckpointFunction = std::function<Variable(const std::vector<Variable>&)>;

// Returns the function's result, without what its operations keep for the backward pass: that is recomputed from the
// inputs when the backward pass reaches it. Equivalent to torch.utils.checkpoint. Gradients are bit-identical to those
// of a plain call, provided that no input is also used outside of the function.
//
// The function is called once more, with the same values, under the scopes of this call: module names, autocast and
// every ContextScope; dropout repeats its random numbers. It has to compute the same again, and to change nothing: what
// a layer does to its own state in training, such as running statistics, it leaves out while is_recomputing(). Products
// at its end whose values the backward pass does not need are left out as well, so it must not look at its result.
// Parameters that it uses need not be inputs; results of operations outside of it do.
//
// Ownership: the function is kept until the backward pass, and what it refers to has to live as long.
// Threads: those of the tape: one thread at a time.
// Errors: Errc::usage for a function that uses the result of an operation which is not among the inputs, and for one
//   whose second result has another shape or dtype.
Variable checkpoint(CheckpointFunction function, const std::vector<Variable>& inputs);

// A scope of the code above on which the results of functions depend: checkpoint() makes the scopes that enclose the
// call again around the second one.
class ContextScope {
 public:
  // Makes the scope again, for as long as the result exists.
  using Maker = std::function<std::shared_ptr<void>()>;
  virtual Maker maker() const = 0;

  // Returns the makers of all scopes of this thread, the outermost first.
  static std::vector<Maker> makers();

  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 protected:
  ContextScope();
  ~ContextScope();

 private:
  const ContextScope* before_;
};

// Returns whether this thread computes a function of checkpoint() for the second time.
bool is_recomputing();

}  // namespace ddprun::autograd
