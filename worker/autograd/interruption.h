#pragma once

#include <functional>

namespace ddprun::autograd {

// While one exists on a thread, each operation there calls the check before it computes, in forward and backward passes
// alike. A check that throws ends a pass whose result nobody can use, such as one for a step that other ranks have to
// repeat: gradients are incomplete then, and tensors that the pass changes in place may be changed or not.
//
// Scopes of a thread nest; the innermost one's check is called. Without one, an operation tests a pointer of its
// thread. Errors: an operation, or Variable::backward(), throws what the check throws.
class InterruptionScope {
 public:
  explicit InterruptionScope(std::function<void()> check);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;

 private:
  const std::function<void()> check_;
  const std::function<void()>* const before_;
};

}  // namespace ddprun::autograd
