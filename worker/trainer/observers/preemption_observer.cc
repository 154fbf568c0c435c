#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// Reports this rank's preemption requests. They need a checkpoint.dir: without one, stopping would lose the run.
class PreemptionObserver : public Observer {
 public:
  explicit PreemptionObserver(const PreemptionListener* listener) : listener_(listener) {}

  bool stop_requested() const override { return listener_ && listener_->requested(); }

  void step_finished(const StepEvent& event) override {
    if (event.stops) event.session.group().barrier()->wait();  // no rank reports it before rank 0 has saved
  }

 private:
  const PreemptionListener* const listener_;
};

}  // namespace

std::unique_ptr<Observer> make_preemption_observer(const ObserverContext& context, Observer&) {
  if (context.config.checkpoint.dir.empty()) return nullptr;
  return std::make_unique<PreemptionObserver>(context.preemption);
}

}  // namespace ddprun::trainer
