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
  for (LateReader* reader : readers_) reader->copy_to_host(late_);
  late_.wait();
  for (LateReader* reader : readers_) reader->read(late_);
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
    const Findings& found = step.findings;
    own.skipped = found.skipped && late_.at(*found.skipped) != 0;
    if (found.loss_scale) own.loss_scale = late_.at(*found.loss_scale);
    own.grad_norm = grad_norm_of(found);
  }
  steps_.clear();
  late_.clear();
  return figures;
}

// A loss scale that is too large makes gradients infinite, of which the norm says nothing.
std::optional<double> StepValues::grad_norm_of(const Findings& found) const {
  const bool skipped = found.skipped && late_.at(*found.skipped) != 0;
  const auto place = found.clipped_square_sum && !skipped ? found.clipped_square_sum : found.square_sum;
  if (!place) return std::nullopt;
  const double norm = std::sqrt(late_.at(*place));
  if (skipped && found.loss_scale && !std::isfinite(norm)) return std::nullopt;
  return norm;
}

}  // namespace ddprun::trainer
