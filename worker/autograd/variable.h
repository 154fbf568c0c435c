#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/tensor/tensor.h"

namespace ddprun {

namespace autograd {
struct VariableNode;
struct Access;
}  // namespace autograd

// A tensor that the tape knows: a handle to one shared node, which holds the value, the gradient and the hooks. Copies
// of the handle are the same variable: a weight that two modules hold is tied. Operations (autograd/ops) on variables
// record how to go back; backward() then adds to the gradient of every leaf that requires one.
//
// Ownership: the node lives as long as a handle or a tape refers to it.
// Threads: a tape, its variables and backward() belong to one thread at a time.
// Errors: Errc::usage for a call that needs a leaf that requires a gradient; Errc::mismatch for shapes and dtypes.
class Variable {
 public:
  Variable() = default;  // undefined
  explicit Variable(Tensor value, bool requires_grad = false);

  bool defined() const { return node_ != nullptr; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  DType dtype() const { return value().dtype(); }
  Device device() const { return value().device(); }
  // Returns whether both are the same variable, not only equal ones.
  bool is(const Variable& other) const { return node_ == other.node_; }

  // A leaf was not made by a recorded operation.
  bool is_leaf() const;
  bool requires_grad() const;
  // on = false freezes a leaf, which loses its gradient; operations treat it as a constant from now on.
  void set_requires_grad(bool on);
  // Replaces a leaf's value at all handles: another dtype, device or memory. An existing gradient is dropped.
  void set_value(Tensor value);

  // The gradient of a leaf: undefined until one was accumulated or storage was set. Always undefined for the result of
  // an operation: those are freed while backward() runs.
  const Tensor& grad() const;
  // The gradient lives in this memory from now on (same shape and dtype; such as a bucket's slice): an existing
  // gradient is copied there, otherwise it is set to zero. zero_grad() keeps the storage, whose memory may hold the old
  // values until a backward pass reaches the variable or grad() is called: so no pass clears what the next one
  // overwrites. grad() is defined from then on; with a lazy storage only while it holds a gradient: after one was
  // accumulated or define_grad() was called, until zero_grad(). Borrowed storage is that of other variables, and only
  // they clear it: zero_grad() is Errc::usage.
  enum class GradStorage { eager, lazy, borrowed };
  void set_grad_storage(Tensor storage, GradStorage kind = GradStorage::eager);
  // The overload for memory that is asked for when a pass first reaches the variable, and may hold anything then. It
  // stays until release_grad(), which drops gradient and memory. zero_grad(), which would keep it, is not allowed.
  void set_grad_storage(std::function<Tensor()> make);
  void release_grad();
  void zero_grad();
  // Declares the content of the storage a gradient: another rank's contribution was added to it.
  void define_grad();
  // The reverse: grad() is undefined until define_grad(), and the storage stays.
  void undefine_grad();

  // Removes its hook when it is destroyed. It may outlive the variable.
  class Hook {
   public:
    Hook() = default;
    Hook(Hook&& other) noexcept;
    Hook& operator=(Hook&& other) noexcept;
    ~Hook();

   private:
    friend class Variable;
    std::weak_ptr<autograd::VariableNode> node_;
    std::uint64_t number_ = 0;
  };
  // Calls the function in each backward pass that reaches this leaf, as soon as its gradient is complete; leaves become
  // complete in about the reverse order of their use. A leaf that the loss does not depend on is not reached. Several
  // hooks run in the order in which they were added.
  [[nodiscard]] Hook on_grad_ready(std::function<void()> hook) const;

  // Adds the gradients of a scalar, or of any tensor whose own gradient is given, to all leaves. Frees the tape as it
  // goes, so a second call on the same tape is Errc::usage. An exception of a hook ends the pass and is rethrown here.
  void backward(const Tensor& gradient = {}) const;
  // Returns the same value without its history.
  Variable detach() const { return Variable(value()); }

 private:
  friend struct autograd::Access;
  autograd::VariableNode& leaf(const char* what) const;

  std::shared_ptr<autograd::VariableNode> node_;
};

// Runs one pass from several results; gradients[i] is that of roots[i], undefined for a scalar's 1.
void backward(const std::vector<Variable>& roots, const std::vector<Tensor>& gradients = {});

// To be called only inside backward(), that is in a hook: runs the action once all gradients of the pass are complete.
// Actions run in the order in which they were left.
void at_end_of_backward(std::function<void()> action);

// While one exists on a thread, operations there record nothing: for evaluation, and for what an optimizer does.
class NoGradScope {
 public:
  NoGradScope();
  ~NoGradScope();
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool before_;
};

bool grad_enabled();

}  // namespace ddprun
