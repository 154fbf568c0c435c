#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"

namespace ddprun::optim {

using NamedParameters = std::vector<std::pair<std::string, Variable>>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct OptimOptions {
  double lr = 1e-3;
  double momentum = 0;      // sgd
  double weight_decay = 0;  // added to the gradient, times the parameter (L2)
  double beta1 = 0.9;       // adam
  double beta2 = 0.999;     // adam
  double eps = 1e-8;        // adam
};

// Changes parameters by their gradients; a parameter without a gradient is left alone. Deterministic: one pass a
// tensor, in the parameters' order. One thread at a time.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  void step();
  void zero_grad();

  double lr() const { return options_.lr; }
  void set_lr(double lr) { options_.lr = lr; }

  // Steps taken; part of the state (Adam's bias correction).
  std::int64_t step_count() const { return step_count_; }
  void set_step_count(std::int64_t count) { step_count_ = count; }
  // "conv1.weight.exp_avg", ...: there from construction on and shared, so writing into them restores a checkpoint.
  const NamedTensors& state() const { return state_; }

 protected:
  Optimizer(NamedParameters parameters, OptimOptions options);
  // One zeroed state tensor like each parameter, in their order.
  std::vector<Tensor> add_state(const std::string& suffix);
  virtual void update(std::size_t index, Tensor& value, const Tensor& gradient) = 0;

  const OptimOptions& options() const { return options_; }

 private:
  NamedParameters parameters_;
  OptimOptions options_;
  NamedTensors state_;
  std::int64_t step_count_ = 0;
};

// "sgd" and "adam", both as PyTorch defines them. Throws Errc::usage for an unknown name (naming the known ones) or a
// value out of bounds.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimOptions& options,
                                          NamedParameters parameters);

std::vector<std::string_view> optimizer_names();

}  // namespace ddprun::optim
