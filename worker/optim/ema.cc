#include "worker/optim/ema.h"

#include <utility>

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
  kernels::EmaStep step{.decay = decay_, .first = !started_};
  if (skip_.defined()) step.skip = static_cast<const float*>(skip_.raw());
  if (made_.defined() && !started_) step.made = static_cast<const double*>(made_.raw());
  std::vector<Tensor> averages, values;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    averages.push_back(averages_[i].second);
    values.push_back(parameters_[i].second.value());
    const bool is_last = i + 1 == parameters_.size() || averages_[i + 1].second.device() != averages.back().device();
    if (!is_last) continue;
    kernels::of(averages.back()).ema_step(averages, values, step);
    averages.clear();
    values.clear();
  }
  if (!made_.defined()) started_ = true;
}

void ExponentialMovingAverage::skip_if(Tensor flag, Tensor made) {
  skip_ = std::move(flag);
  made_ = std::move(made);
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
