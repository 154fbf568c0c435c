#include "worker/trainer/session/step_sums.h"

#include <algorithm>
#include <utility>

#include "worker/comm/span.h"

namespace ddprun::trainer {

void StepSums::begin(StepRequests requests, bool wants_next) {
  const auto number = [](bool requested) { return requested ? 1.0 : 0.0; };
  sums_ = {number(requests.stop), number(requests.change), number(wants_next)};
  first_of_experts_ = sums_.size();
  append_expert_numbers();
  first_loss_ = sums_.size();
}

// The ranks of a stage have the same numbers, those of the stages add up.
void StepSums::append_expert_numbers() {
  auto numbers = from_.runner.take_expert_numbers();
  if (!from_.forms.is_first_of_stage()) std::ranges::fill(numbers, 0.0);
  sums_.insert(sums_.end(), numbers.begin(), numbers.end());
}

WorkPtr StepSums::start(bool with_losses) {
  if (with_losses) {
    const auto own = own_losses();
    sums_.insert(sums_.end(), own.begin(), own.end());
  }
  from_.times.append_to(sums_);
  return from_.group.allreduce(span_of(sums_), ReduceOp::sum);
}

std::vector<double> StepSums::own_losses() const {
  if (from_.forms.shard_sums) return {from_.forms.shard_sums->loss_sum()};
  auto sums = from_.values.loss_sums();
  if (!from_.forms.axes.has_own_losses()) std::ranges::fill(sums, 0.0);
  return sums;
}

void StepSums::take(bool with_losses, StepResult& result) {
  result.rank_times = from_.times.take_from(sums_);
  result.stop_requested = sums_[0] > 0;
  result.change_requested = sums_[1] > 0;
  next_is_read_ = sums_[2] > 0;
  const std::span<const double> sums = sums_;
  result.experts = expert_use_of(sums.subspan(first_of_experts_, first_loss_ - first_of_experts_));
  result.has_figures = with_losses || result.stop_requested;
  if (with_losses)
    take_figures(sums.subspan(first_loss_, from_.values.steps()), result);
  else if (result.stop_requested)
    read_late(result);
}

void StepSums::take_figures(std::span<const double> losses, StepResult& result) {
  result.late_figures = from_.values.take(losses);
  const StepFigures own = std::move(result.late_figures.back());
  result.late_figures.pop_back();
  result.loss = own.loss;
  if (from_.forms.device().type == DeviceType::cpu) return;
  result.grad_norm = own.grad_norm;
  result.loss_scale = own.loss_scale;
  result.skipped = own.skipped;
}

void StepSums::read_late(StepResult& result) {
  from_.values.wait();
  auto losses = own_losses();
  from_.group.allreduce(span_of(losses), ReduceOp::sum, {.blocking = true});
  take_figures(losses, result);
}

}  // namespace ddprun::trainer
