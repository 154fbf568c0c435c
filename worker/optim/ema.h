#pragma once

#include <utility>
#include <vector>

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

// An exponential moving average of parameters, as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay):
// after the first update() a copy of the parameters, then average = decay average + (1 - decay) parameter.
//
// Ownership: it holds handles on the parameters, and owns the averages. Threads: one at a time.
// Errors: Errc::usage for a decay outside [0, 1).
class ExponentialMovingAverage {
 public:
  ExponentialMovingAverage(NamedParameters parameters, double decay);

  // To be called once after each step of the optimizer.
  void update();
  // Lets later updates change nothing on the devices of these flags if their kernels find so. With StepFlags::made the
  // first step that changes something starts the averages, and the host learns of it by set_started().
  void skip_if(std::vector<StepFlags> flags) { flags_ = std::move(flags); }
  // The averages by parameter name. They exist from construction on: writing to them restores a checkpoint.
  const NamedTensors& averages() const { return averages_; }
  // Returns whether there has been an update, or a checkpoint was restored.
  bool started() const { return started_; }
  void set_started() { started_ = true; }

  // While it lives, the parameters have the averages as values, if there are any.
  class Scope {
   public:
    explicit Scope(const ExponentialMovingAverage& average);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const NamedParameters& parameters_;
    std::vector<Tensor> values_;  // those of the parameters outside of the scope; empty if they are unchanged
  };

 private:
  // averages, values: neighbours on this device.
  void update_on(Device device, const std::vector<Tensor>& averages, const std::vector<Tensor>& values) const;

  NamedParameters parameters_;
  NamedTensors averages_;
  double decay_;
  bool started_ = false;
  std::vector<StepFlags> flags_;
};

}  // namespace ddprun::optim
