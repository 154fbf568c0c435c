#include "worker/trainer/session/step_values.h"

#include <cmath>

#include "worker/trainer/session/evaluation.h"

namespace ddprun::trainer {

void StepValues::begin(std::int64_t step, double items) {
  if (on_host_) {
    steps_.clear();
    late_.clear();
  }
  steps_.push_back({.number = step, .items = items});
}

void StepValues::add_loss(const Tensor& loss, double weight) {
  steps_.back().losses.push_back({.value = late_.add(loss), .weight = weight});
}

void StepValues::wait() {
  if (are_known()) return;
  const auto cancelled = gate_ ? std::optional(late_.add(gate_->cancelled())) : std::nullopt;
  late_.wait();
  if (cancelled) gate_->require_open(late_.at(*cancelled));
}

std::vector<double> StepValues::loss_sums() const {
  std::vector<double> sums;
  for (const Step& step : steps_) {
    double sum = 0;
    for (const Loss& loss : step.losses) sum += late_.at(loss.value) * loss.weight;
    sums.push_back(sum);
  }
  return sums;
}

std::vector<StepFigures> StepValues::take(std::span<const double> loss_sums) {
  std::vector<StepFigures> figures;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    StepFigures& own = figures.emplace_back();
    own.step = step.number;
    own.loss = without_nan_sign(loss_sums[i] / step.items);
    if (step.square_sum) own.grad_norm = std::sqrt(late_.at(*step.square_sum));
  }
  steps_.clear();
  late_.clear();
  return figures;
}

}  // namespace ddprun::trainer
