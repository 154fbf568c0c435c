#include <algorithm>
#include <optional>
#include <vector>

#include "worker/trainer/observers/observers.h"
#include "worker/trainer/report/event_file.h"

namespace ddprun::trainer {
namespace {

// metrics.tensorboard: rank 0 writes scalars of each step and each evaluation.
class TensorBoardObserver : public Observer {
 public:
  explicit TensorBoardObserver(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // A process that goes on in another group uses the same file, as long as no step is repeated.
  void session_started(Session& session) override {
    waiting_.clear();
    const auto step = session.state().run.step;
    if (session.is_first() && (!file_ || last_ > step)) file_.emplace(folder_, step + 1);
    last_ = step;
  }

  void step_finished(const StepEvent& event) override {
    if (!file_) return;
    const auto& result = event.result;
    const auto& run = event.session.state().run;
    if (event.repeated) file_.emplace(folder_, run.step);  // replaces this step's records
    last_ = run.step;
    const auto total = std::max(result.times.total(), Seconds(1e-9));
    auto& own = waiting_.emplace_back();
    own.lr = run.lr;
    own.samples_per_s = static_cast<double>(result.samples) / total.count();
    if (result.experts) {
      own.others.push_back({"train/expert_load", result.experts->load});
      own.others.push_back({"train/dropped", result.experts->dropped});
    }
    if (result.has_figures) write_waiting(known_figures(result, run));
  }

  void evaluation_finished(const EvaluationEvent& event) override {
    if (!file_ || event.repeated) return;
    const auto& found = event.evaluation;
    std::vector<Scalar> scalars{{"eval/loss", found.loss}};
    if (found.accuracy) scalars.push_back({"eval/accuracy", *found.accuracy});
    for (const auto& [name, value] : found.others) scalars.push_back({"eval/" + name, value});
    file_->add(event.session.state().run.step, scalars);
  }

  void before_checkpoint() override {
    if (file_) file_->flush();
  }

 private:
  // A step whose figures may not be known yet.
  struct Step {
    StepFigures figures;
    double lr = 0, samples_per_s = 0;
    std::vector<Scalar> others = {};
  };

  // figures: those of all waiting steps.
  void write_waiting(const std::vector<StepFigures>& figures) {
    for (std::size_t i = 0; i < figures.size(); ++i) waiting_.at(i).figures = figures[i];
    for (const Step& step : waiting_) write(step);
    waiting_.clear();
  }

  void write(const Step& step) {
    std::vector<Scalar> scalars{
        {"train/loss", step.figures.loss}, {"train/lr", step.lr}, {"train/samples_per_s", step.samples_per_s}};
    if (step.figures.grad_norm) scalars.push_back({"train/grad_norm", *step.figures.grad_norm});
    if (step.figures.loss_scale) scalars.push_back({"train/loss_scale", *step.figures.loss_scale});
    scalars.insert(scalars.end(), step.others.begin(), step.others.end());
    file_->add(step.figures.step, scalars);
  }

  const std::filesystem::path folder_;
  std::optional<EventFile> file_;  // set at rank 0
  std::vector<Step> waiting_;      // those without figures, which come with a later step's
  std::int64_t last_ = 0;          // the last step that was recorded
};

}  // namespace

std::unique_ptr<Observer> make_tensorboard_observer(const ObserverContext& context, Observer&) {
  const auto& folder = context.config.metrics.tensorboard;
  return folder.empty() ? nullptr : std::make_unique<TensorBoardObserver>(folder);
}

}  // namespace ddprun::trainer
