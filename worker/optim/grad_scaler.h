#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "worker/optim/parameter_group.h"
#include "worker/tensor/step_rules.h"

namespace ddprun::optim {

// Options with PyTorch's defaults.
struct GradScalerOptions {
  double scale = 65536;
  double growth = 2;     // factor of the scale after growth_interval steps in a row with finite gradients
  double backoff = 0.5;  // factor of the scale after a step whose gradients are not finite
  std::int64_t growth_interval = 2000;
};

// Keeps gradients within the range of float16, like torch.amp.GradScaler: the loss is multiplied by a scale before
// backward(), the gradients are divided by it before they are clipped and used, and a step whose gradients are not
// finite is skipped and lowers the scale.
//
//   mul(loss, scaler.scale()).backward();
//   const bool finite = scaler.unscale(parameters);
//   if (finite) { clip_grad_norm(parameters, 1); optimizer.step(); }
//   scaler.update(finite);
//
// With data-parallel training: call unscale() once the gradients are averaged. An infinity of one rank is in the
// average of all, so all ranks skip alike without another message.
//
// Threads: one at a time.
// Errors: Errc::usage for an option out of bounds.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  double scale() const { return state_.scale; }
  // Divides the gradients by the scale, in place. Returns false, and the gradients are of no use, if one is not finite.
  // If each rank has only parts of the parameters: holds_at_all returns whether all ranks' gradients are finite.
  using HoldsAtAll = std::function<bool(bool)>;
  bool unscale(const NamedParameters& parameters, const HoldsAtAll& holds_at_all = {}) const;
  // To be called once after each step.
  void update(bool finite);

  // Lets CUDA devices update the scale (kernels::StepState): scale() is that of the last set_state() then, and a loss
  // is multiplied by the scale on its device, one float32. No scales end that.
  void keep_on_devices(std::vector<Tensor> scales) { on_devices_ = std::move(scales); }
  // Returns the scale on that device; undefined if the host updates it.
  Tensor on_device(Device device) const;

  // The state that a run that resumes has to restore.
  using State = kernels::LossScale;
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }
  const kernels::LossScaleRule& rule() const { return rule_; }

 private:
  kernels::LossScaleRule rule_;
  State state_;
  std::vector<Tensor> on_devices_;
};

// Divides the gradients by the scale, one float64 on a CUDA device, for which the host does not wait. Returns one
// float32 there, 0 if all gradients are finite. REQUIRES: gradients on CUDA devices, at least one.
Tensor unscale_there(const NamedParameters& parameters, const Tensor& scale);

}  // namespace ddprun::optim
