#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// Evaluates after every so many epochs (eval.every_epochs; 0: never) and at the end of the run.
class EvaluationObserver : public Observer {
 public:
  EvaluationObserver(std::int64_t every_epochs, Summary& summary, Observer& all)
      : every_epochs_(every_epochs), summary_(summary), all_(all) {}

  void step_finished(const StepEvent& event) override {
    const auto epoch = event.result.epoch;
    const bool due = event.result.ends_epoch && every_epochs_ > 0 && epoch % every_epochs_ == 0;
    if (due || event.last) evaluate(event.session, epoch, false);
  }

  // A run that was complete when it resumed takes no step.
  void run_finished(Session& session) override {
    if (!evaluated_) evaluate(session, session.state().run.epoch, true);
  }

 private:
  void evaluate(Session& session, std::int64_t epoch, bool repeated) {
    evaluated_ = true;
    summary_.evaluation = session.evaluate();
    const bool best = !repeated && session.state().record_evaluation(summary_.evaluation.loss);
    all_.evaluation_finished(
        {.session = session, .evaluation = summary_.evaluation, .epoch = epoch, .best = best, .repeated = repeated});
  }

  const std::int64_t every_epochs_;
  Summary& summary_;
  Observer& all_;
  bool evaluated_ = false;
};

}  // namespace

std::unique_ptr<Observer> make_evaluation_observer(const ObserverContext& context, Observer& all) {
  return std::make_unique<EvaluationObserver>(context.config.eval.every_epochs, context.summary, all);
}

}  // namespace ddprun::trainer
