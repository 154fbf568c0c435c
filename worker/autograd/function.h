#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/interruption.h"
#include "worker/autograd/variable.h"

// The way to put an operation on the tape: all of autograd/ops, and a user's own. An example, y = x^3:
//
//   Variable cube(const Variable& x) {
//     const autograd::Function operation("cube", {x});
//     const Tensor& v = x.value();
//     Tensor y = kernels::multiply(kernels::multiply(v, v), v);
//     return operation.record(y, {v}, [](autograd::Backward& pass) {
//       const Tensor& v = pass.saved(0);
//       pass.add(0, kernels::scale(kernels::multiply(pass.grad(), kernels::multiply(v, v)), 3));
//     });
//   }
namespace ddprun::autograd {

class OperationObserver;

// The interface of a backward function: the gradient of its result, the tensors it saved, and where to put the
// gradients of its inputs.
class Backward {
 public:
  virtual ~Backward() = default;
  virtual const Tensor& grad() const = 0;        // contiguous
  virtual const Tensor& dense_grad() const = 0;  // contiguous, or blocked by channels
  // Throws Errc::usage if the tensor was changed in place since it was saved.
  virtual const Tensor& saved(std::size_t index) const = 0;
  // Returns whether the gradient of this input is needed; skip the work otherwise.
  virtual bool wants(std::size_t input) const = 0;
  virtual void add(std::size_t input, Tensor gradient) = 0;

  // For an operation that adds to its gradient what the other users of its input have contributed, in one pass over
  // memory. If the input is a result, this returns that contribution, which belongs to the caller from now on and is to
  // be part of what the caller passes to add(). Undefined if there is none.
  virtual Tensor take(std::size_t input) = 0;
  // The type in which the operation that made this input reads its gradient as well (reads_gradient_in()), and add()
  // with a copy in that type.
  virtual std::optional<DType> copy_dtype(std::size_t input) const = 0;
  virtual void add(std::size_t input, Tensor gradient, Tensor copy) = 0;
  // Returns grad() in another type: the copy in that type if there is one, otherwise a cast.
  virtual Tensor grad_in(DType dtype) const = 0;

  // The memory of a leaf's gradient, where its operation can write it instead of calling add(): it overwrites the
  // memory or adds to it. It is float32 where the input is a leaf that was cast to 16 bits. Undefined if there is none.
  struct Target {
    Tensor memory;
    bool accumulate = false;
  };
  virtual Target target(std::size_t input) = 0;
};

// Computes the gradient of an input of this shape and type by compute(Tensor& out, bool accumulate), in place if its
// memory exists already.
template <class Compute>
void add_computed(Backward& pass, std::size_t input, const Shape& shape, DType dtype, Compute compute) {
  if (!pass.wants(input)) return;
  check_interruption();
  Backward::Target target = pass.target(input);
  const bool in_place = target.memory.defined();
  if (!in_place) target.memory = Tensor::empty(shape, dtype, pass.dense_grad().device());
  compute(target.memory, target.accumulate);
  if (!in_place) pass.add(input, std::move(target.memory));
}

// The overload for an input of the result's type.
template <class Compute>
void add_computed(Backward& pass, std::size_t input, const Shape& shape, Compute compute) {
  add_computed(pass, input, shape, pass.dense_grad().dtype(), std::move(compute));
}

// A backward function captures numbers and shapes; tensors are saved with record(), where their memory is accounted for
// and changes in place are noticed. It never captures a variable: that would keep the tape alive.
using BackwardFunction = std::function<void(Backward&)>;

// One call of an operation, made before its result is computed.
class Function {
 public:
  // name: a string that lives for ever. Undefined inputs are allowed. Throws Errc::mismatch, naming both devices and
  // the module, if the inputs, or others, the operands that have no gradients, lie on different ones, and within a
  // PlacementCheckScope if the inputs lie differently over ranks; Errc::usage if one is absent (Storage::is_present()).
  Function(const char* name, std::initializer_list<Variable> inputs, std::initializer_list<Tensor> others = {});
  Function(const char* name, std::vector<Variable> inputs);
  ~Function() {
    if (observer_) end_observation();
  }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  const char* name() const { return name_; }
  // Returns whether record() will record: an operation can do less work otherwise.
  bool records() const { return records_; }
  // Called once by a product (of matrices, a convolution) before it is computed: returns whether its values are used at
  // all. They are not at the end of a function that checkpoint() calls again; the result is uninitialized memory then.
  bool needs_value() const;
  // Returns the result as a variable. Nothing is recorded when recording is off or no input requires a gradient. In
  // anomaly mode throws Errc::unsupported if the value is not finite.
  Variable record(Tensor value, std::vector<Tensor> saved, BackwardFunction backward) const;

 private:
  void begin_observation();
  void end_observation();

  const char* name_;
  std::vector<Variable> inputs_;
  bool records_;
  mutable bool is_product_ = false;
  OperationObserver* observer_ = nullptr;  // the observer of this call, or null
};

// Declares that the operation that made this result calls grad_in() with this type: add() may give it a copy, too.
void reads_gradient_in(const Variable& result, DType dtype);

// While one exists on a thread, counts what operations there keep for the backward pass, in bytes by the path of the
// module that saves them first. Parameters do not count. Meant for one forward pass: memory that is freed and allocated
// again is not counted again.
class SavedBytesScope {
 public:
  explicit SavedBytesScope(std::map<std::string, std::size_t>& bytes);
  ~SavedBytesScope();
  SavedBytesScope(const SavedBytesScope&) = delete;
  SavedBytesScope& operator=(const SavedBytesScope&) = delete;

  // Called by operations.
  static void note(const std::vector<Variable>& inputs, const std::vector<Tensor>& saved);

 private:
  std::map<std::string, std::size_t>& bytes_;
  std::set<const Storage*> counted_;
  SavedBytesScope* before_;
};

// While one exists on a thread, each result and each gradient that operations compute there is checked: a NaN or an
// infinity throws Errc::unsupported, naming the operation and the module that produced it. This costs a pass over every
// tensor.
class AnomalyScope {
 public:
  AnomalyScope();
  ~AnomalyScope();
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

 private:
  bool before_;
};

// Names the part of a model whose operations run on this thread during its lifetime; scopes nest. name outlives it.
class NameScope {
 public:
  explicit NameScope(const std::string& name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;
};

// Returns a path such as "blocks.3.attention"; empty outside of all scopes.
std::string current_scope();

}  // namespace ddprun::autograd
