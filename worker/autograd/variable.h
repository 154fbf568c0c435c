#pragma once

#include <functional>
#include <memory>

#include "ddprun/worker/tensor/tensor.h"

namespace ddprun {

namespace autograd {
class Node;
struct Leaf;
struct Access;
}  // namespace autograd

// A tensor in the tape: a cheap handle, copies share value, gradient and hook. Operations (autograd/ops) on variables
// record how to go back; backward() from a scalar then adds to the gradient of every leaf that asked for one. A tape,
// its variables and backward() belong to one thread at a time.
class Variable {
 public:
  Variable() = default;  // undefined
  explicit Variable(Tensor value, bool requires_grad = false);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  bool requires_grad() const { return leaf_ != nullptr || node_ != nullptr; }

  // A leaf's gradient: undefined until one was accumulated or storage was set. Always undefined for the result of an
  // operation: those are freed while backward() runs.
  const Tensor& grad() const;
  Tensor& grad();  // only for such a leaf: Errc::usage otherwise
  // The gradient lives in this memory from now on (same shape and dtype; such as a bucket's slice): an existing
  // gradient is copied there, otherwise it is set to zero. zero_grad() keeps the storage. grad() is defined from then
  // on; with a lazy storage only while it holds a gradient: after one was accumulated or define_grad() was called,
  // until zero_grad().
  enum class GradStorage { eager, lazy };
  void set_grad_storage(Tensor storage, GradStorage kind = GradStorage::eager);
  void zero_grad();
  // The content of the storage is a gradient: another rank's contribution was added to it.
  void define_grad();
  // Called by backward(), once in each pass that reaches this leaf, as soon as its gradient is complete; leaves become
  // complete in about the reverse order of their use. A leaf that the loss does not depend on is not reached. One hook
  // a leaf: setting another replaces it, an empty one removes it.
  void on_grad_ready(std::function<void()> hook);

  // From a scalar. Frees the tape as it goes, so a second call on the same tape is Errc::usage. What a hook throws ends
  // the pass and comes out here.
  void backward() const;
  // The same value without its history.
  Variable detach() const { return Variable(value_); }

 private:
  friend struct autograd::Access;
  autograd::Leaf& leaf(const char* what) const;  // Errc::usage if this is not a leaf that requires a gradient

  Tensor value_;
  std::shared_ptr<autograd::Leaf> leaf_;  // of a leaf that requires a gradient
  std::shared_ptr<autograd::Node> node_;  // of the result of a recorded operation
};

// For an on_grad_ready hook only: action runs once the pass under way has computed all gradients, before backward()
// returns; several in the order of the calls. What one throws comes out of backward(). Errc::usage outside of a pass.
void at_end_of_backward(std::function<void()> action);

// Whether operations are recorded on this thread.
bool grad_enabled();

// While alive, operations on this thread are not recorded: evaluation, optimizer steps. Scopes nest.
class NoGradScope {
 public:
  NoGradScope();
  ~NoGradScope();
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool before_;
};

}  // namespace ddprun
