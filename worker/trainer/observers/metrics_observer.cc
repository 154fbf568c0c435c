#include <algorithm>
#include <optional>
#include <vector>

#include "worker/trainer/observers/observers.h"
#include "worker/trainer/report/memory_report.h"
#include "worker/trainer/report/metrics.h"

namespace ddprun::trainer {
namespace {

// metrics.file: rank 0 writes a record of each rank's memory, then one for each step and each evaluation.
class MetricsObserver : public Observer {
 public:
  explicit MetricsObserver(std::filesystem::path path) : path_(std::move(path)) {}

  void session_started(Session& session) override {
    waiting_.clear();
    const auto step = session.state().run.step;
    const bool returns = written_ && written_->step > step;  // to an earlier step, from which steps are repeated
    if (session.is_first() && (!file_ || returns)) file_.emplace(path_, step);
    if (returns) written_.reset();
  }

  void step_finished(const StepEvent& event) override {
    const auto& result = event.result;
    const auto& run = event.session.state().run;
    if (event.repeated && file_) remove_records(run.step, result.steps);
    if (file_) written_ = {run.step, file_->size()};
    if (run.step == result.steps) add_memory(event);
    if (!file_) return;
    const auto total = std::max(result.times.total(), Seconds(1e-9));
    waiting_.push_back({.step = run.step,
                        .epoch = result.epoch,
                        .lr = run.lr,
                        .samples_per_s = static_cast<double>(result.samples) / total.count(),
                        .compute = result.times.compute() / total,
                        .wait = result.times.communication() / total,
                        .bytes_sent = result.bytes_sent,
                        .experts = result.experts,
                        .staleness = result.staleness});
    if (result.has_figures) write_waiting(known_figures(result, run));
  }

  void evaluation_finished(const EvaluationEvent& event) override {
    if (!file_ || event.repeated) return;
    const auto& found = event.evaluation;
    file_->add(EvalRecord{event.epoch, found.loss, found.accuracy, found.others});
  }

  void before_checkpoint() override {
    if (file_) file_->flush();
  }

 private:
  // Removes the records of this step and later ones, by this process or the one that it replaces.
  void remove_records(std::int64_t step, std::int64_t steps) {
    if (!written_)
      file_.emplace(path_, step - steps);
    else if (written_->step == step)
      file_->cut(written_->begin);
  }

  // figures: those of all waiting records.
  void write_waiting(const std::vector<StepFigures>& figures) {
    for (std::size_t i = 0; i < figures.size(); ++i) {
      auto& record = waiting_.at(i);
      record.loss = figures[i].loss;
      record.grad_norm = figures[i].grad_norm;
      record.loss_scale = figures[i].loss_scale;
      record.skipped_steps = figures[i].skipped_steps;
    }
    for (const auto& record : waiting_) file_->add(record);
    waiting_.clear();
  }

  // All ranks take part, since the setting is the same at all of them.
  void add_memory(const StepEvent& event) {
    auto& session = event.session;
    auto use = memory_of(session.state(), event.result.activation_peak, event.result.model_peaks);
    use.device = device_memory_report(session.state(), event.result.peaks_by_place);
    const auto lines = gather_memory(use, session.group());
    if (!file_) return;
    for (const auto& line : lines) file_->add_line(line);
  }

  struct Written {
    std::int64_t step;
    std::size_t begin;  // position of the step's records
  };

  const std::filesystem::path path_;
  std::optional<MetricsFile> file_;  // set at rank 0
  std::optional<Written> written_;   // the last step that this process has written
  std::vector<StepRecord> waiting_;  // those without figures, which come with a later step's
};

}  // namespace

std::unique_ptr<Observer> make_metrics_observer(const ObserverContext& context, Observer&) {
  const auto& path = context.config.metrics.file;
  return path.empty() ? nullptr : std::make_unique<MetricsObserver>(path);
}

}  // namespace ddprun::trainer
