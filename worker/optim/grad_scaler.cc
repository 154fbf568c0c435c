#include "worker/optim/grad_scaler.h"

#include "common/error.h"
#include "worker/tensor/by_device.h"
#include "worker/tensor/kernels.h"

namespace ddprun::optim {
namespace {

void check(const GradScalerOptions& options) {
  if (!(options.scale > 0)) throw make_error(Errc::usage, "loss scale: {} is not above 0", options.scale);
  if (!(options.growth >= 1)) throw make_error(Errc::usage, "loss scale: a growth of {} is below 1", options.growth);
  if (!(options.backoff > 0 && options.backoff < 1))
    throw make_error(Errc::usage, "loss scale: a backoff of {} is not between 0 and 1", options.backoff);
  if (options.growth_interval < 1)
    throw make_error(Errc::usage, "loss scale: a growth interval of {} is below 1", options.growth_interval);
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : rule_{.growth = options.growth, .backoff = options.backoff, .growth_interval = options.growth_interval},
      state_{.scale = options.scale} {
  check(options);
}

bool GradScaler::unscale(const NamedParameters& parameters, const HoldsAtAll& holds_at_all) const {
  const auto gradients = gradients_of(parameters);
  if (!gradients.empty() && gradients[0].device().type == DeviceType::cuda) {
    const Tensor scale = Tensor::full({}, state_.scale, DType::float64, gradients[0].device());
    const bool finite = unscale_there(parameters, scale).item() == 0;
    return holds_at_all ? holds_at_all(finite) : finite;
  }
  const bool finite = kernels::all_finite(gradients);
  if (!(holds_at_all ? holds_at_all(finite) : finite)) return false;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.grad().defined()) continue;
    Tensor gradient = parameter.grad();
    kernels::of(gradient).unary(kernels::Unary::scale, {.a = 1 / state_.scale}, gradient, gradient);
    gradient.storage()->bump_version();
  }
  return true;
}

void GradScaler::update(bool finite) {
  state_ = kernels::next_loss_scale(state_, rule_, finite);
}

Tensor GradScaler::on_device(Device device) const {
  for (const Tensor& scale : on_devices_)
    if (scale.device() == device) return scale;
  return {};
}

Tensor unscale_there(const NamedParameters& parameters, const Tensor& scale) {
  const auto gradients = gradients_of(parameters);
  Tensor not_finite;  // above 0 where a gradient is infinite or NaN, on the first one's device
  for (const auto& [device, own] : by_device(gradients)) {
    Tensor found = Tensor::empty({}, DType::float32, device);
    kernels::of(found).unscale(own, scale.to(device), found);
    not_finite = not_finite.defined() ? kernels::add(not_finite, found.to(not_finite.device())) : found;
  }
  for (const Tensor& gradient : gradients) gradient.storage()->bump_version();
  return not_finite;
}

}  // namespace ddprun::optim
