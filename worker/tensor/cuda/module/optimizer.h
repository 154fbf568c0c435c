#pragma once

#include <cstddef>

#include "worker/tensor/cuda/device_api.h"

// Steps of optimizers (optimizer.cu), and before them the operations on gradients (gradients.cu) and the decision about
// the step (step_rules.cu), in place; they are as in DeviceApi.
namespace ddprun::cuda {

void sgd_step(DeviceContext& device, std::size_t count, const View* values, const View* grads, const View* momenta,
              const View* started, const kernels::SgdStep& step);
void adam_step(DeviceContext& device, std::size_t count, const View* values, const View* grads, const View* averages,
               const View* square_averages, const kernels::AdamStep& step);
void ema_step(DeviceContext& device, std::size_t count, const View* averages, const View* values,
              const kernels::EmaStep& step);
void square_sum(DeviceContext& device, std::size_t count, const View* tensors, const View& sum);
void clip_to_norm(DeviceContext& device, std::size_t count, const View* tensors, double max_norm,
                  const View& square_sum);
void clip_to_value(DeviceContext& device, std::size_t count, const View* tensors, double max_value);
void unscale(DeviceContext& device, std::size_t count, const View* tensors, const View& scale, const View& not_finite);
void decide_step(DeviceContext& device, const kernels::StepRules& rules, const kernels::StepFindings& found,
                 const View& state, const View& loss_scale, const View& skip);

}  // namespace ddprun::cuda
