#include "worker/trainer/observers/observers.h"
#include "worker/trainer/report/memory_report.h"

namespace ddprun::trainer {
namespace {

// train.memory_report: a table of rank 0 at the end of the run. What operations save is that of the first step.
class MemoryObserver : public Observer {
 public:
  explicit MemoryObserver(Progress& progress) : progress_(progress) {}

  void session_started(Session& session) override { session.record_saved_bytes(); }

  void step_finished(const StepEvent& event) override {
    peak_ = std::max(peak_, event.result.activation_peak);
    peaks_by_place_.include(event.result.peaks_by_place);
    model_peaks_.parameters = std::max(model_peaks_.parameters, event.result.model_peaks.parameters);
    model_peaks_.gradients = std::max(model_peaks_.gradients, event.result.model_peaks.gradients);
    if (event.last && event.session.is_first()) print(event.session);
  }

 private:
  void print(const Session& session) {
    const auto& state = session.state();
    const auto modules = memory_by_module(state, session.saved_bytes());
    auto use = memory_of(state, peak_, model_peaks_);
    use.device = device_memory_report(state, peaks_by_place_);
    for (const auto& line : memory_table(use, modules)) progress_.line(line);
  }

  Progress& progress_;
  std::size_t peak_ = 0;
  ActivationPeaks peaks_by_place_;
  ModelPeaks model_peaks_;
};

}  // namespace

std::unique_ptr<Observer> make_memory_observer(const ObserverContext& context, Observer&) {
  return context.config.train.memory_report ? std::make_unique<MemoryObserver>(context.progress) : nullptr;
}

}  // namespace ddprun::trainer
