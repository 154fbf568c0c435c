#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "ddprun/worker/autograd/variable.h"

// What an operation needs to put itself on the tape; users of operations do not include this.
namespace ddprun::autograd {

// What a backward closure sees: the gradient of its result, and places to put the gradients of its inputs.
class Backward {
 public:
  virtual ~Backward() = default;
  virtual const Tensor& grad() const = 0;
  // Whether anybody wants the gradient of this input; skip the work otherwise.
  virtual bool wants(std::size_t input) const = 0;
  virtual void add(std::size_t input, Tensor gradient) = 0;
  // The memory to which a gradient can be added in place (a leaf's own), or undefined: then use add().
  virtual Tensor accumulator(std::size_t input) = 0;
};
// Captures tensors, never variables: those would keep the tape alive. The capture list is the memory bill.
using BackwardFunction = std::function<void(Backward&)>;

// The result of an operation. Nothing is recorded when recording is off or no input requires a gradient.
Variable record(Tensor value, const std::vector<Variable>& inputs, BackwardFunction backward);
// Whether record() would record: for operations that can do less work otherwise.
bool records(const std::vector<Variable>& inputs);

}  // namespace ddprun::autograd
