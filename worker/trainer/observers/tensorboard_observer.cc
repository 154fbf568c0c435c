#include <algorithm>
#include <optional>

#include "ddprun/worker/trainer/event_file.h"
#include "ddprun/worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// metrics.tensorboard: rank 0 writes scalars of each step and each evaluation.
class TensorBoardObserver : public Observer {
 public:
  explicit TensorBoardObserver(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void session_started(Session& session) override {
    file_.reset();
    if (session.is_first()) file_.emplace(folder_, session.state().run.step + 1);
  }

  void step_finished(const StepEvent& event) override {
    if (!file_) return;
    const auto& result = event.result;
    const auto& run = event.session.state().run;
    const auto total = std::max(result.times.total(), Seconds(1e-9));
    std::vector<Scalar> scalars{{"train/loss", result.loss},
                                {"train/lr", run.lr},
                                {"train/samples_per_s", static_cast<double>(result.samples) / total.count()}};
    if (result.grad_norm) scalars.push_back({"train/grad_norm", *result.grad_norm});
    if (result.loss_scale) scalars.push_back({"train/loss_scale", *result.loss_scale});
    if (result.experts) {
      scalars.push_back({"train/expert_load", result.experts->load});
      scalars.push_back({"train/dropped", result.experts->dropped});
    }
    file_->add(run.step, scalars);
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
  const std::filesystem::path folder_;
  std::optional<EventFile> file_;  // rank 0
};

}  // namespace

std::unique_ptr<Observer> make_tensorboard_observer(const ObserverContext& context, Observer&) {
  const auto& folder = context.config.metrics.tensorboard;
  return folder.empty() ? nullptr : std::make_unique<TensorBoardObserver>(folder);
}

}  // namespace ddprun::trainer
