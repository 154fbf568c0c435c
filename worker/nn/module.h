#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/tensor/random.h"

namespace ddprun::nn {

// A function with parameters (learnt), buffers (kept, not learnt: running statistics) and child modules. Names are
// paths as in PyTorch, "conv1.weight", in the order of registration, which is a pure function of the model. A module
// owns its children. One thread at a time.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Variable forward(const Variable& input) = 0;

  // The handles share memory with the module: writing into them changes it.
  std::vector<std::pair<std::string, Variable>> named_parameters() const;
  std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  // The sources of randomness that forward() draws from (dropout): whoever trains gives each rank a stream of its own,
  // as a function of the step, so that no checkpoint has to hold them.
  std::vector<std::pair<std::string, Generator*>> named_generators();

  // Training or evaluation, for this module and all below it; training at first.
  void train(bool on = true);
  bool training() const { return training_; }
  void zero_grad();

 protected:
  // The names must not repeat within a module nor contain a dot: Errc::usage.
  Variable register_parameter(const std::string& name, Tensor value);
  Tensor register_buffer(const std::string& name, Tensor value);
  void register_generator(const std::string& name, Generator& generator);
  // The reference stays valid as long as this module lives.
  template <class M>
  M& register_module(const std::string& name, std::unique_ptr<M> child) {
    M& reference = *child;
    add_child(name, std::move(child));
    return reference;
  }

 private:
  void check_name(const std::string& name) const;
  void add_child(const std::string& name, std::unique_ptr<Module> child);

  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<std::pair<std::string, Tensor>> buffers_;
  std::vector<std::pair<std::string, Generator*>> generators_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  bool training_ = true;
};

}  // namespace ddprun::nn
