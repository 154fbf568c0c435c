#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/log.h"
#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// Prints lines or a bar on rank 0's standard output. The rate is the mean over the steps of this process.
class ProgressObserver : public Observer {
 public:
  ProgressObserver(Progress& progress, std::int64_t epochs) : progress_(progress), epochs_(epochs) {}

  // A process that joins later leaves the events after the step to which it joins to the process before.
  void session_started(Session& session) override {
    if (!step_) step_ = session.state().run.step;
  }

  void step_finished(const StepEvent& event) override {
    const auto& result = event.result;
    const auto step = event.session.state().run.step;
    if (!event.session.is_first() || step <= *step_) return;
    step_ = step;
    for (const auto& known : known_figures(result, event.session.state().run)) take(known, event.session);
    spent_ += std::max(result.times.total(), Seconds(1e-9));
    samples_ += result.samples;
    steps_ += result.steps;
    interval_ += result.times;
    const bool printed = progress_.step({.step = step,
                                         .steps = result.steps,
                                         .total_steps = event.total_steps,
                                         .epoch = result.epoch,
                                         .epochs = epochs_,
                                         .loss = loss_,
                                         .samples_per_s = static_cast<double>(samples_) / spent_.count(),
                                         .left = spent_ / steps_ * (event.total_steps - step),
                                         .loss_scale = loss_scale_,
                                         .skipped_steps = event.session.state().run.skipped_steps,
                                         .experts = result.experts,
                                         .shares = shares_of(interval_)});
    if (printed) interval_ = {};
    add_staleness(result.staleness);
    if ((result.ends_epoch || event.last) && !staleness_.empty())
      progress_.line(staleness_line(std::exchange(staleness_, {})));
    if (!result.balance.empty()) progress_.line(fmt::format("step {}: {}", step, result.balance));
  }

  void evaluation_finished(const EvaluationEvent& event) override {
    if (event.repeated || event.session.state().run.step == evaluated_) return;
    evaluated_ = event.session.state().run.step;
    progress_.line(evaluation_line(event.epoch, epochs_, event.within_epoch ? evaluated_ : 0, event.evaluation));
  }

 private:
  void take(const StepFigures& step, const Session& session) {
    loss_ = step.loss;
    loss_scale_ = step.loss_scale;
    if (step.skipped && step.grad_norm)
      log::warn(
          "step {} is skipped: the norm of its gradients is {:.4g}, the median of the last steps {:.4g} "
          "(optim.skip_outliers)",
          step.step, *step.grad_norm, session.state().outliers->median());
  }

  void add_staleness(const std::vector<std::int64_t>& counts) {
    staleness_.resize(std::max(staleness_.size(), counts.size()));
    for (std::size_t age = 0; age < counts.size(); ++age) staleness_[age] += counts[age];
  }

  static TimeShares shares_of(const StepTimes& times) {
    const auto total = std::max(times.total(), Seconds(1e-9));
    return {.data = (times.data + times.upload) / total,
            .compute = times.compute() / total,
            .communication = times.communication() / total};
  }

  Progress& progress_;
  const std::int64_t epochs_;
  std::optional<std::int64_t> step_;  // the last one that was reported
  std::int64_t evaluated_ = -1;       // the step of the last evaluation
  Seconds spent_{0};
  std::int64_t samples_ = 0;
  std::int64_t steps_ = 0;
  double loss_ = 0;                      // the last one that is known
  std::optional<double> loss_scale_;     // likewise
  StepTimes interval_;                   // since the last line
  std::vector<std::int64_t> staleness_;  // that of the epoch; with servers of parameters
};

}  // namespace

std::unique_ptr<Observer> make_progress_observer(const ObserverContext& context, Observer&) {
  return std::make_unique<ProgressObserver>(context.progress, context.config.train.epochs);
}

}  // namespace ddprun::trainer
