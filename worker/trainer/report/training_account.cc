#include "worker/trainer/report/training_account.h"

#include <algorithm>
#include <utility>

namespace ddprun::trainer {
namespace {

// The rate covers at least so many seconds, so that it can be read.
constexpr double rate_window = 1;

}  // namespace

double lateness_of(const std::vector<profiler::StepTimes>& ranks, int rank, int steps) {
  std::vector<double> own;
  for (const auto& times : ranks) own.push_back(times.own().count());
  const double mine = own.at(static_cast<std::size_t>(rank));
  const auto middle = own.begin() + static_cast<std::ptrdiff_t>((own.size() - 1) / 2);
  std::nth_element(own.begin(), middle, own.end());
  return std::max(0.0, mine - *middle) / steps;
}

void TrainingAccount::start(Now now, Place place) {
  record_.pid = place.pid;
  record_.rank = place.rank;
  record_.world_size = place.size;
  record_.time_ms = now.wall.count();
  record_.first_step_ms = 0;
  accounted_ = now.steady;
  checkpoint_under_way_ = false;
}

void TrainingAccount::steps_done(Now now, const Steps& steps) {
  // The time between two steps, for a checkpoint for example.
  const auto between = std::max(0.0, (now.steady - accounted_ - steps.times.total()).count());
  record_checkpoint(between);
  record_position(now, steps);
  count_step(steps);
  measure_rate(steps);
}

void TrainingAccount::steps_repeated(Now now, const Steps& steps) {
  record_position(now, steps);
}

void TrainingAccount::record_position(Now now, const Steps& steps) {
  accounted_ = now.steady;
  record_.time_ms = now.wall.count();
  if (record_.first_step_ms == 0) record_.first_step_ms = record_.time_ms;
  record_.step = steps.step;
  record_.total_steps = steps.total;
  record_.epoch = steps.epoch;
  record_.epochs = steps.epochs;
  if (steps.loss) record_.loss = *steps.loss;
  record_.learning_rate = steps.learning_rate;
  if (steps.gradient_norm) record_.gradient_norm = *steps.gradient_norm;
  if (!steps.rank_times.empty())
    record_.lateness = lateness_of(steps.rank_times, static_cast<int>(record_.rank), steps.rank_steps);
}

void TrainingAccount::count_step(const Steps& steps) {
  record_.steps += steps.count;
  record_.samples += steps.samples;
  record_.tokens += steps.tokens;
  record_.data += (steps.times.data + steps.times.upload).count();
  record_.compute += steps.times.compute().count();
  record_.communication += steps.times.communication().count();
  const auto& bounds = TrainingRecord::step_bounds;
  const double seconds = steps.times.total().count() / static_cast<double>(steps.count);
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin();
  record_.step_counts.at(static_cast<std::size_t>(bucket)) += steps.count;
}

void TrainingAccount::measure_rate(const Steps& steps) {
  rate_seconds_ += steps.times.total().count();
  rate_samples_ += steps.samples;
  const bool first = record_.samples_per_s != record_.samples_per_s;
  if (rate_seconds_ > 0 && (first || rate_seconds_ >= rate_window)) {
    record_.samples_per_s = static_cast<double>(rate_samples_) / rate_seconds_;
    rate_seconds_ = 0;
    rate_samples_ = 0;
  }
  record_.seconds_left =
      record_.step_seconds() / static_cast<double>(record_.steps) * static_cast<double>(steps.total - steps.step);
}

void TrainingAccount::evaluated(Now now, double loss, std::optional<double> accuracy) {
  record_.evaluation += (now.steady - accounted_).count();
  accounted_ = now.steady;
  record_.evaluation_step = record_.step;
  record_.evaluation_loss = loss;
  record_.accuracy = accuracy.value_or(TrainingRecord::unknown);
  record_.time_ms = now.wall.count();
}

void TrainingAccount::run_finished(Now now) {
  record_checkpoint((now.steady - accounted_).count());
  accounted_ = now.steady;
  record_.time_ms = now.wall.count();
}

void TrainingAccount::record_checkpoint(double seconds) {
  if (std::exchange(checkpoint_under_way_, false)) record_.checkpoint += seconds;
}

void TrainingAccount::checkpoint_saved(std::int64_t step, std::chrono::milliseconds wall) {
  record_.checkpoint_step = step;
  record_.checkpoint_ms = wall.count();
}

}  // namespace ddprun::trainer
