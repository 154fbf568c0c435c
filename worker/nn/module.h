#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun::nn {

// The modules that keep nothing but their inputs for the backward pass, which then computes them again: none; the
// blocks of the model (those of a transformer, residual blocks); or all layers of a container and all modules with
// parts below.
enum class Recompute { none, blocks, all };

// Observes the calls of the module that it was set on. It is called again where a module is computed again.
//
// Threads: those of the module. What a method throws, the call throws.
class CallHook {
 public:
  virtual ~CallHook() = default;
  // Called before forward(): returns the inputs that it sees, these or others with the same values.
  virtual std::vector<Variable> before(std::vector<Variable> inputs) = 0;
  // Called after forward(): returns the results that its caller sees, these or others with the same values.
  virtual std::vector<Variable> after(std::vector<Variable> results) = 0;
};

// A function with parameters (learnt), buffers (kept, not learnt: running statistics) and child modules. Names are
// paths as in PyTorch, "conv1.weight", in the order of registration, which is a pure function of the model.
//
// Ownership: a module owns its children. Parameters and buffers are shared handles: one registered in two places is
//   tied, and appears only under its first path.
// Threads: one at a time.
// Errors: Errc::usage for a name that repeats within a module, is empty or has a dot, and for a path that does not
//   exist.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Runs forward() under this module's name, which errors and profiles then carry. Call this, not forward().
  Variable operator()(const Variable& input);
  // The overload with several inputs and outputs, in the order that the module defines; none of it is computed again.
  std::vector<Variable> operator()(const std::vector<Variable>& inputs);

  // The handles are the module's own: writing into them changes it.
  std::vector<std::pair<std::string, Variable>> named_parameters() const;
  std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  Variable parameter(const std::string& path) const;  // "conv1.weight"
  Module& module(const std::string& path);            // "blocks.3"; the empty path is this module
  std::vector<std::string> module_names() const;      // those of the modules directly below
  // Visits this module and all below it, those above first.
  void for_each_module(const std::function<void(Module&)>& visit);

  // Makes another module run in this one's place, under its name, with its parameters and buffers; references to this
  // one stay valid. Null restores this one. The other may have a substitute itself. REQUIRES: this module has no parts
  // below.
  void set_substitute(std::unique_ptr<Module> other);
  Module* substitute() const { return substitute_.get(); }  // null if there is none
  // Returns whether a call is only forward(), so that a module above may compute it as part of a larger operation.
  bool is_plain() const {
    return !substitute_ && !call_hook_ && !inputs_to_ && !results_to_ && !(recompute_ && training_);
  }

  // Sets training or evaluation, for this module and all below it; training at first.
  void train(bool on = true);
  bool training() const { return training_; }
  void zero_grad();
  // Freezes (on = false) or unfreezes all parameters of this module and below.
  void set_requires_grad(bool on);
  // Makes the modules below this one compute again while they train (autograd::checkpoint()). The same bits, for less
  // memory and more time.
  void set_recompute(Recompute which);
  // Returns the modules that use parameters by themselves: each block with all below it, and outside of blocks each
  // module with parameters of its own. A module that is in none of them has no parameters.
  std::vector<std::pair<std::string, Module*>> parameter_users();
  // A part of a sequence of parts that compute one after the other.
  struct Piece {
    std::string name;                                // "h.3"
    std::vector<Module*> modules;                    // those that it calls
    std::function<Variable(const Variable&)> run{};  // empty, in sequence(): calls the one module
  };
  // Returns this module as the longest sequence of pieces that it can be cut into, for pipelines: each gets the result
  // of the one before, and all of them compute what the module computes. One piece without a sequence().
  std::vector<Piece> pieces();
  // Sets the hook of this module and replaces an earlier one; null: none.
  void set_call_hook(std::unique_ptr<CallHook> hook) { call_hook_ = std::move(hook); }
  // Moves parameters and buffers in place: optimizers and tied modules see the change, gradients are dropped. A dtype
  // applies to floating-point tensors.
  void to(Device device);
  void to(DType dtype);

  // Moves this module to a device, and from now on its inputs too: for a model whose parts are on several devices.
  void place(Device device);
  // From now on this module's results go to a device, such as that of the targets.
  void place_results(Device device) { results_to_ = device; }

 protected:
  // A module overrides the first; one with several inputs or outputs the second. The default of the first throws
  // Errc::usage, that of the second calls the first for one input.
  virtual Variable forward(const Variable& input);
  virtual std::vector<Variable> forward_all(const std::vector<Variable>& inputs);

  // The role of this module for set_recompute(): a block repeats in a model; a container only calls its parts.
  enum class Part { layer, block, container };
  virtual Part part() const { return Part::layer; }

  // The pieces that forward() calls one after the other, for a module that does nothing else; empty: it cannot be cut.
  virtual std::vector<Piece> sequence() { return {}; }

  Variable register_parameter(const std::string& name, Tensor value);
  // Ties a parameter that another module has registered too.
  Variable register_parameter(const std::string& name, const Variable& parameter);
  Variable register_buffer(const std::string& name, Tensor value);
  // The reference stays valid as long as this module lives.
  template <class M>
  M& register_module(const std::string& name, std::unique_ptr<M> child) {
    M& reference = *child;
    add_child(name, std::move(child));
    return reference;
  }

 private:
  using NamedVariables = std::vector<std::pair<std::string, Variable>>;
  Variable run(const Variable& input) { return substitute_ ? substitute_->run(input) : forward(input); }
  void check_name(const std::string& name) const;
  void add_child(const std::string& name, std::unique_ptr<Module> child);
  void collect(const std::string& prefix, NamedVariables Module::*list, NamedVariables& all) const;
  NamedVariables distinct(NamedVariables Module::*list) const;
  template <class Change>
  void change_values(Change change);
  void collect_users(const std::string& path, std::vector<std::pair<std::string, Module*>>& users);
  std::vector<Variable> call_hooked(const std::vector<Variable>& inputs, bool as_list);
  Variable call(const Variable& input);

  std::string name_;  // within the parent
  NamedVariables parameters_;
  NamedVariables buffers_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  std::unique_ptr<Module> substitute_;
  std::optional<Device> inputs_to_, results_to_;
  std::unique_ptr<CallHook> call_hook_;
  bool training_ = true;
  bool recompute_ = false;
};

}  // namespace ddprun::nn
