#include <vector>

#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::Tensors;

std::vector<View> views_of(Tensors tensors) {
  std::vector<View> views;
  views.reserve(tensors.size());
  for (const Tensor& tensor : tensors) views.push_back(view_of(tensor));
  return views;
}

const View* or_null(const std::vector<View>& views) {
  return views.empty() ? nullptr : views.data();
}

void sgd_step(Tensors values, Tensors grads, Tensors momenta, Tensors started, const kernels::SgdStep& step) {
  if (values.empty()) return;
  const CudaDevice& on = device_of(values[0]);
  const auto of_values = views_of(values), of_grads = views_of(grads), of_momenta = views_of(momenta),
             of_started = views_of(started);
  check(on.api().sgd_step(on.context(), values.size(), of_values.data(), of_grads.data(), or_null(of_momenta),
                          or_null(of_started), step));
}

void adam_step(Tensors values, Tensors grads, Tensors averages, Tensors square_averages,
               const kernels::AdamStep& step) {
  if (values.empty()) return;
  const CudaDevice& on = device_of(values[0]);
  const auto of_values = views_of(values), of_grads = views_of(grads), of_averages = views_of(averages),
             of_squares = views_of(square_averages);
  check(on.api().adam_step(on.context(), values.size(), of_values.data(), of_grads.data(), of_averages.data(),
                           of_squares.data(), step));
}

void ema_step(Tensors averages, Tensors values, const kernels::EmaStep& step) {
  if (averages.empty()) return;
  const CudaDevice& on = device_of(averages[0]);
  const auto of_averages = views_of(averages), of_values = views_of(values);
  check(on.api().ema_step(on.context(), averages.size(), of_averages.data(), of_values.data(), step));
}

void square_sum(Tensors tensors, Tensor& sum) {
  const CudaDevice& on = device_of(sum);
  const auto views = views_of(tensors);
  check(on.api().square_sum(on.context(), views.size(), views.data(), view_of(sum)));
}

void clip_to_norm(Tensors tensors, double max_norm, const Tensor& square_sum) {
  const CudaDevice& on = device_of(square_sum);
  const auto views = views_of(tensors);
  check(on.api().clip_to_norm(on.context(), views.size(), views.data(), max_norm, view_of(square_sum)));
}

void clip_to_value(Tensors tensors, double max_value) {
  if (tensors.empty()) return;
  const CudaDevice& on = device_of(tensors[0]);
  const auto views = views_of(tensors);
  check(on.api().clip_to_value(on.context(), views.size(), views.data(), max_value));
}

void unscale(Tensors tensors, const Tensor& scale, Tensor& not_finite) {
  const CudaDevice& on = device_of(not_finite);
  const auto views = views_of(tensors);
  check(on.api().unscale(on.context(), views.size(), views.data(), view_of(scale), view_of(not_finite)));
}

void decide_step(const kernels::StepRules& rules, const kernels::StepFindings& found, Tensor& state, Tensor& loss_scale,
                 Tensor& skip) {
  const CudaDevice& on = device_of(state);
  check(on.api().decide_step(on.context(), rules, found, view_of(state), view_of(loss_scale), view_of(skip)));
}

}  // namespace

void add_optimizers(const DeviceApi& api, kernels::Table& table) {
  offer(table.sgd_step, sgd_step, api.sgd_step);
  offer(table.adam_step, adam_step, api.adam_step);
  offer(table.ema_step, ema_step, api.ema_step);
  offer(table.square_sum, square_sum, api.square_sum);
  offer(table.clip_to_norm, clip_to_norm, api.clip_to_norm);
  offer(table.clip_to_value, clip_to_value, api.clip_to_value);
  offer(table.unscale, unscale, api.unscale);
  offer(table.decide_step, decide_step, api.decide_step);
}

}  // namespace ddprun::cuda
