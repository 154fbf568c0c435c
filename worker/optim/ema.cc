#include "worker/optim/ema.h"

#include "common/error.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/memory_owner.h"

namespace ddprun::optim {

ExponentialMovingAverage::ExponentialMovingAverage(NamedParameters parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  if (!(decay >= 0 && decay < 1))
    throw make_error(Errc::usage, "average of parameters: a decay of {} is not at least 0 and below 1", decay);
  const MemoryScope scope(MemoryOwner::optimizer);
  for (const auto& [name, parameter] : parameters_) averages_.emplace_back(name, parameter.value().clone());
}

void ExponentialMovingAverage::update() {
  std::vector<Tensor> averages, values;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    averages.push_back(averages_[i].second);
    values.push_back(parameters_[i].second.value());
    const bool is_last = i + 1 == parameters_.size() || averages_[i + 1].second.device() != averages.back().device();
    if (!is_last) continue;
    update_on(averages.back().device(), averages, values);
    averages.clear();
    values.clear();
  }
  const bool device_counts = !flags_.empty() && flags_[0].made.defined();
  if (!device_counts) started_ = true;
}

void ExponentialMovingAverage::update_on(Device device, const std::vector<Tensor>& averages,
                                         const std::vector<Tensor>& values) const {
  kernels::EmaStep step{.decay = decay_, .first = !started_};
  if (const StepFlags* flags = flags_on(device, flags_)) {
    step.skip = number_in<float>(flags->skip);
    if (!started_) step.made = number_in<double>(flags->made);
  }
  kernels::of(averages[0]).ema_step(averages, values, step);
}

ExponentialMovingAverage::Scope::Scope(const ExponentialMovingAverage& average) : parameters_(average.parameters_) {
  if (!average.started_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor value = parameters_[i].second.value();
    values_.push_back(value.clone());
    value.copy_from(average.averages_[i].second);
  }
}

ExponentialMovingAverage::Scope::~Scope() {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    Tensor value = parameters_[i].second.value();
    value.copy_from(values_[i]);
  }
}

}  // namespace ddprun::optim
