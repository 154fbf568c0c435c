#include <cmath>
#include <limits>

#include "common/error.h"
#include "common/log.h"
#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// 2^-16: with PyTorch's defaults more than 32 steps were skipped in a row.
constexpr double smallest_loss_scale = 1.0 / 65536;

// Stops the run, or warns once, if a loss is not finite (train.stop_on_nonfinite). The losses are the same at all
// ranks, so all stop at the same step; the saved state is from before it.
class FiniteCheck : public Observer {
 public:
  FiniteCheck(bool stop, Summary& summary) : stop_(stop), summary_(summary) {}

  void step_finished(const StepEvent& event) override {
    for (const auto& figures : known_figures(event.result, event.session.state().run)) check(figures, event.session);
  }
  void evaluation_finished(const EvaluationEvent& event) override {
    check("test loss", event.evaluation.loss, event.session.state().run.step, event.session);
  }

 private:
  void check(const StepFigures& step, const Session& session) {
    if (!step.skipped || !step.loss_scale) return check("loss", step.loss, step.step, session);
    // The loss scale recovers from a step that is skipped. If it does not, no scale is small enough.
    if (*step.loss_scale < smallest_loss_scale)
      check("gradient", std::numeric_limits<double>::infinity(), step.step, session);
  }
  void check(const char* what, double loss, std::int64_t step, const Session& session) {
    if (std::isfinite(loss) || summary_.diverged_at > 0) return;
    summary_.diverged_at = step;
    const auto text = fmt::format("the {} of step {} is {}: training has diverged", what, summary_.diverged_at, loss);
    if (stop_)
      throw make_error(Errc::unsupported, "{} and stops without a checkpoint of this step (train.stop_on_nonfinite)",
                       text);
    if (session.is_first()) log::warn("{}, and continues (train.stop_on_nonfinite = false)", text);
  }

  const bool stop_;
  Summary& summary_;
};

}  // namespace

std::unique_ptr<Observer> make_finite_check(const ObserverContext& context, Observer&) {
  return std::make_unique<FiniteCheck>(context.config.train.stop_on_nonfinite, context.summary);
}

}  // namespace ddprun::trainer
