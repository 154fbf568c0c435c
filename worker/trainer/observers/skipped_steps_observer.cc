#include "common/log.h"
#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// A loss scale that is too large costs a step now and then, and one more for each halving at the start of a run.
constexpr std::int64_t steps_without_a_word = 2;

// Counts the steps in which the optimizer changed nothing, and warns while none of several in a row changes anything.
// Outliers have warnings of their own, one a step.
class SkippedStepsObserver : public Observer {
 public:
  explicit SkippedStepsObserver(Summary& summary) : summary_(summary) {}

  void session_started(Session& session) override { count(session); }

  void step_finished(const StepEvent& event) override {
    count(event.session);
    if (event.repeated) return;
    for (const auto& step : known_figures(event.result, event.session.state().run)) count(step, event.session);
  }

 private:
  void count(const StepFigures& step, const Session& session) {
    in_a_row_ = step.skipped ? in_a_row_ + 1 : 0;
    if (in_a_row_ <= steps_without_a_word || step.grad_norm || !session.is_first()) return;
    log::warn("steps {} to {} are skipped: their gradients are not finite, now at a loss scale of {}",
              step.step - in_a_row_ + 1, step.step, step.loss_scale.value_or(1));
  }
  void count(const Session& session) { summary_.skipped_steps = session.state().run.skipped_steps; }

  Summary& summary_;
  std::int64_t in_a_row_ = 0;
};

}  // namespace

std::unique_ptr<Observer> make_skipped_steps_observer(const ObserverContext& context, Observer&) {
  return std::make_unique<SkippedStepsObserver>(context.summary);
}

}  // namespace ddprun::trainer
