#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/optim/parameter_group.h"
#include "worker/optim/step_flags.h"
#include "worker/optim/tensor_parts.h"

namespace ddprun::optim {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// The options of all optimizers. An optimizer does not use those that are not its own, but all of them are checked.
struct OptimOptions {
  double lr = 1e-3;
  double momentum = 0;  // sgd, rmsprop, lars, muon
  // sgd, adam, rmsprop, adagrad: added to the gradient, times the parameter (L2). For the others see their headers.
  double weight_decay = 0;
  double beta1 = 0.9;    // adam, adamw, lamb, muon
  double beta2 = 0.999;  // adam, adamw, lamb, muon
  // adam, adamw: the second average does not change after this step (1-bit Adam); 0: it always does.
  std::int64_t freeze_step = 0;
  double eps = 1e-8;                      // all except sgd and lars
  double dampening = 0;                   // sgd: this share of the gradient does not enter the momentum
  bool nesterov = false;                  // sgd, muon: with momentum and without dampening
  double alpha = 0.99;                    // rmsprop
  bool centered = false;                  // rmsprop
  double lr_decay = 0;                    // adagrad
  double trust_coefficient = 0.001;       // lars
  std::int64_t ns_steps = 5;              // muon
  std::string adjust_lr_fn = "original";  // muon: or match_rms_adamw
  // Folder of files that hold the state (offload.h); if empty, it is in memory. For parameters on the CPU.
  std::filesystem::path offload;
  // Set if the parameters are parts of tensors, for lamb, lars and muon: the others treat each element by itself.
  std::shared_ptr<TensorParts> parts;
};

// Changes parameters by their gradients; a parameter without a gradient is left alone. Deterministic: in the
// order of groups and parameters. Only muon, and lamb and lars with parts of tensors, allocate memory in a step.
//
// Ownership: it holds handles on the parameters, and owns its state.
// Threads: one at a time.
// Errors: Errc::mismatch for a parameter whose dtype or shape is another than when the optimizer was made. With
//   offload, the constructor throws what zeros_in_file() throws.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();
  void zero_grad();

  // The rate before it is multiplied by the groups' factors.
  double lr() const { return options_.lr; }
  void set_lr(double lr) { options_.lr = lr; }

  // The steps taken; part of the state (Adam's bias correction counts the optimizer's steps, not a parameter's).
  std::int64_t step_count() const { return step_count_; }
  void set_step_count(std::int64_t count) { step_count_ = count; }
  // Lets later steps change nothing on the devices of these flags, one for each device, if their kernels find so;
  // without flags they always change something. step_count() counts steps that were left out, too. Throws
  // Errc::unsupported if this optimizer changes more than what kernels know of.
  void skip_if(std::vector<StepFlags> flags);
  // The state by names such as "conv1.weight.exp_avg"; it exists from construction on: writing restores a checkpoint.
  const NamedTensors& state() const { return state_; }

 protected:
  // The hyper-parameters of a group in this step, and the indices of its parameters among all.
  struct GroupStep {
    double lr, weight_decay;
    std::size_t begin, end;
    std::size_t number;
  };

  Optimizer(std::vector<ParameterGroup> groups, const OptimOptions& options);
  // Adds one zeroed state tensor like each parameter, in their order; undefined where has is given and returns false
  // for the parameter's name and whole shape.
  std::vector<Tensor> add_state(const std::string& suffix, bool (*has)(std::string_view, const Shape&) = nullptr);
  // Adds one zeroed number, int64, for each parameter, on its device.
  std::vector<Tensor> add_counters(const std::string& suffix);

  // Returns whether an update is made by kernels that get skip() and left_out().
  virtual bool can_skip() const { return false; }
  // Updates all parameters of a group.
  virtual void update(const GroupStep& group) = 0;
  // Calls function(index, value, gradient) for each parameter of the group that has a gradient.
  template <class Function>
  void for_each(const GroupStep& group, Function function) {
    for (std::size_t i = group.begin; i < group.end; ++i) {
      const Variable& parameter = parameters_[i].second;
      if (!parameter.grad().defined()) continue;
      Tensor value = parameter.value();
      function(i, value, parameter.grad());
      value.storage()->bump_version();
    }
  }

  // Parameters and what belongs to them, for kernels that take many tensors at once.
  struct Lists {
    std::vector<Tensor> values, gradients, first_state, second_state;  // a state that does not exist is empty
  };
  // Calls step(lists) for all parameters of the group that have a gradient: neighbours on one device go together.
  // first, second: null if there is no such state.
  template <class Function>
  void for_lists(const GroupStep& group, const std::vector<Tensor>* first, const std::vector<Tensor>* second,
                 Function step) {
    clear_lists();
    for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
      if (!lists_.values.empty() && lists_.values[0].device() != value.device()) {
        step(lists_);
        clear_lists();
      }
      lists_.values.push_back(value);
      lists_.gradients.push_back(gradient);
      if (first != nullptr) lists_.first_state.push_back((*first)[index]);
      if (second != nullptr) lists_.second_state.push_back((*second)[index]);
    });
    if (!lists_.values.empty()) step(lists_);
    clear_lists();
  }

  const OptimOptions& options() const { return options_; }
  // These return the numbers of the flags on a device, null where there are none.
  const float* skip(Device device) const;
  const double* left_out(Device device) const;
  const std::string& name_of(std::size_t index) const { return parameters_[index].first; }
  // Returns the shape of the parameter, of which there may be a part here.
  Shape whole_shape(std::size_t index) const;
  // Replaces numbers of parts, as many for each parameter of the group that has a gradient, by those of whole
  // parameters.
  void add_up(const GroupStep& group, std::vector<double>& numbers) const;

 private:
  void clear_lists();

  struct Group {
    double lr_factor, weight_decay;
    std::size_t begin, end;
  };

  Tensor state_like(const Tensor& parameter) const;

  NamedParameters parameters_;  // those of all groups
  std::vector<Group> groups_;
  OptimOptions options_;
  NamedTensors state_;
  std::int64_t step_count_ = 0;
  std::vector<StepFlags> flags_;
  Lists lists_;  // empty except within a step: their memory is kept
};

// Makes one of optimizer_names(). Throws Errc::usage for an unknown name (naming the known ones), a value out of
// bounds, nesterov without momentum or with dampening, a parameter in two groups, and two of one name.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimOptions& options,
                                          std::vector<ParameterGroup> groups);
// The overload for all parameters in one group.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimOptions& options,
                                          NamedParameters parameters);

std::vector<std::string_view> optimizer_names();

// Returns whether the optimizer treats each element by itself, so that the elements of a parameter may be divided among
// optimizers. REQUIRES: one of optimizer_names().
bool is_elementwise(std::string_view name);

}  // namespace ddprun::optim
