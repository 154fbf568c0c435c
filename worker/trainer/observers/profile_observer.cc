#include <optional>

#include "worker/profiler/report.h"
#include "worker/trainer/observers/observers.h"
#include "worker/trainer/report/profiling.h"

namespace ddprun::trainer {
namespace {

// [profile] within a job: profiles once, the first session that takes enough steps, or as many steps as there are.
class ProfileObserver : public Observer {
 public:
  ProfileObserver(const TrainConfig::Profile& options, DType products, Progress& progress)
      : options_(options), products_(products), progress_(progress) {}

  void session_started(Session& session) override {
    if (!reported_) profiling_.emplace(session, options_.warmup, options_.steps, products_);
  }

  void step_finished(const StepEvent& event) override {
    if (!profiling_) return;
    const bool complete = profiling_->step_done(event.result);
    if (complete || event.last || event.stops) report();
  }

 private:
  void report() {
    profiling_->stop();
    if (profiling_->recorded() == 0) {
      progress_.line("profile: the run ended within profile.warmup");
    } else {
      auto summary = profiling_->summary();
      summary.no_larger_batch = "ddprun-worker profile measures one";
      for (const auto& line : profiler::report_of(summary)) progress_.line(line);
      if (!options_.trace.empty()) profiling_->write_trace(options_.trace);
    }
    profiling_.reset();
    reported_ = true;
  }

  const TrainConfig::Profile& options_;
  const DType products_;
  Progress& progress_;
  std::optional<Profiling> profiling_;
  bool reported_ = false;
};

}  // namespace

std::unique_ptr<Observer> make_profile_observer(const ObserverContext& context, Observer&) {
  const auto& options = context.config.profile;
  if (options.steps == 0) return nullptr;
  return std::make_unique<ProfileObserver>(options, compute_dtype(context.config.train), context.progress);
}

}  // namespace ddprun::trainer
