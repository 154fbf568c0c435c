#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// Evaluates after every so many epochs and steps (eval.every_epochs, eval.every_steps; 0: never) and at the end of the
// run.
class EvaluationObserver : public Observer {
 public:
  EvaluationObserver(const TrainConfig::Eval& config, Summary& summary, Observer& all)
      : config_(config), summary_(summary), all_(all) {}

  void step_finished(const StepEvent& event) override {
    const StepResult& result = event.result;
    if (is_due(result, event.session.state().run.step) || event.last)
      evaluate(event.session, result.epoch, {.within_epoch = !result.ends_epoch && !event.last});
  }

  // A run that was complete when it resumed takes no step.
  void run_finished(Session& session) override {
    if (!evaluated_) evaluate(session, session.state().run.epoch, {.repeated = true});
  }

 private:
  struct Place {
    bool within_epoch = false;
    bool repeated = false;
  };

  bool is_due(const StepResult& result, std::int64_t step) const {
    const auto epochs = config_.every_epochs, steps = config_.every_steps;
    if (epochs > 0 && result.ends_epoch && result.epoch % epochs == 0) return true;
    return steps > 0 && step / steps > (step - result.steps) / steps;
  }

  void evaluate(Session& session, std::int64_t epoch, Place place) {
    evaluated_ = true;
    summary_.evaluation = session.evaluate();
    const bool best = !place.repeated && session.state().record_evaluation(summary_.evaluation.loss);
    all_.evaluation_finished({.session = session,
                              .evaluation = summary_.evaluation,
                              .epoch = epoch,
                              .best = best,
                              .repeated = place.repeated,
                              .within_epoch = place.within_epoch});
  }

  const TrainConfig::Eval& config_;
  Summary& summary_;
  Observer& all_;
  bool evaluated_ = false;
};

}  // namespace

std::unique_ptr<Observer> make_evaluation_observer(const ObserverContext& context, Observer& all) {
  return std::make_unique<EvaluationObserver>(context.config.eval, context.summary, all);
}

}  // namespace ddprun::trainer
