#include <cstdint>
#include <utility>

#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"
#include "worker/tensor/optimizer_update.h"

// Bits do not depend on the processor's vector width.
namespace ddprun::cpu {
namespace {

using kernels::AdamStep;
using kernels::EmaStep;
using kernels::SgdStep;
using kernels::Tensors;

template <class T>
DDPRUN_VECTORIZED void sgd(std::int64_t count, T* value, const T* grad, const SgdStep& step) {
  const kernels::SgdUpdate<T> update(step);
  for (std::int64_t i = 0; i < count; ++i) update(value[i], grad[i]);
}

template <class T>
DDPRUN_VECTORIZED void sgd_momentum(std::int64_t count, T* value, const T* grad, T* momentum, bool first,
                                    const SgdStep& step) {
  const kernels::SgdMomentumUpdate<T> update(step, first);
  for (std::int64_t i = 0; i < count; ++i) update(value[i], grad[i], momentum[i]);
}

template <class T>
DDPRUN_VECTORIZED void adam(std::int64_t count, T* value, const T* grad, T* average, T* square_average,
                            const AdamStep& step) {
  const kernels::AdamUpdate<T> update(step);
  for (std::int64_t i = 0; i < count; ++i) update(value[i], grad[i], average[i], square_average[i]);
}

template <class T>
DDPRUN_VECTORIZED void ema(std::int64_t count, T* average, const T* value, const EmaStep& step) {
  const kernels::EmaUpdate<T> update(step);
  for (std::int64_t i = 0; i < count; ++i) update(average[i], value[i]);
}

void step_one(Tensor value, const Tensor& grad, Tensor momentum, bool first, const SgdStep& step) {
  visit_wide(value.dtype(), [&]<class T>() {
    if (momentum.defined())
      sgd_momentum(value.numel(), value.data<T>(), grad.data<T>(), momentum.data<T>(), first, step);
    else
      sgd(value.numel(), value.data<T>(), grad.data<T>(), step);
  });
}

void step_one(Tensor value, const Tensor& grad, Tensor average, Tensor square_average, const AdamStep& step) {
  visit_wide(value.dtype(), [&]<class T>() {
    adam(value.numel(), value.data<T>(), grad.data<T>(), average.data<T>(), square_average.data<T>(), step);
  });
}

void step_one(Tensor average, const Tensor& value, const EmaStep& step) {
  visit_wide(average.dtype(), [&]<class T>() { ema(average.numel(), average.data<T>(), value.data<T>(), step); });
}

bool is_skipped(const float* skip) {
  return skip != nullptr && *skip != 0;
}

// Returns whether the momentum starts with this step, and notes that it has.
bool take_first(Tensor started) {
  return std::exchange(*started.data<std::int64_t>(), 1) == 0;
}

void sgd_step(Tensors values, Tensors grads, Tensors momenta, Tensors started, const SgdStep& step) {
  if (is_skipped(step.skip)) return;
  for (std::size_t i = 0; i < values.size(); ++i)
    step_one(values[i], grads[i], momenta.empty() ? Tensor() : momenta[i], !started.empty() && take_first(started[i]),
             step);
}

void adam_step(Tensors values, Tensors grads, Tensors averages, Tensors square_averages, const AdamStep& step) {
  if (is_skipped(step.skip)) return;
  for (std::size_t i = 0; i < values.size(); ++i) step_one(values[i], grads[i], averages[i], square_averages[i], step);
}

void ema_step(Tensors averages, Tensors values, const EmaStep& step) {
  if (is_skipped(step.skip)) return;
  for (std::size_t i = 0; i < averages.size(); ++i) step_one(averages[i], values[i], step);
}

}  // namespace

void add_optimizers(kernels::Table& table) {
  table.sgd_step = sgd_step;
  table.adam_step = adam_step;
  table.ema_step = ema_step;
}

}  // namespace ddprun::cpu
