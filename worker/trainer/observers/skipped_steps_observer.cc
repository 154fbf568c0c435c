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
    in_a_row_ = event.result.skipped ? in_a_row_ + 1 : 0;
    if (in_a_row_ <= steps_without_a_word || event.result.grad_norm || !event.session.is_first()) return;
    const auto step = event.session.state().run.step;
    log::warn("steps {} to {} are skipped: their gradients are not finite, now at a loss scale of {}",
              step - in_a_row_ + 1, step, event.result.loss_scale.value_or(1));
  }

 private:
  void count(const Session& session) { summary_.skipped_steps = session.state().run.skipped_steps; }

  Summary& summary_;
  std::int64_t in_a_row_ = 0;
};

}  // namespace

std::unique_ptr<Observer> make_skipped_steps_observer(const ObserverContext& context, Observer&) {
  return std::make_unique<SkippedStepsObserver>(context.summary);
}

}  // namespace ddprun::trainer
