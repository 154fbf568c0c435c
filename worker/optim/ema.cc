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
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameters_[i].second.value();
    Tensor& average = averages_[i].second;
    if (!started_) {
      average.copy_from(value);
      continue;
    }
    kernels::of(average).unary(kernels::Unary::scale, {.a = decay_}, average, average);
    kernels::add_in_place(average, kernels::scale(value, 1 - decay_));
  }
  started_ = true;
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
