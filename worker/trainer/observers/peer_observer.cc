#include <algorithm>
#include <optional>

#include "worker/trainer/observers/observers.h"
#include "worker/trainer/recovery/copy_interval.h"

namespace ddprun::trainer {
namespace {

// Keeps copies of the parts of the state in the memory of neighbours (checkpoint.peers): at the beginning of a session,
// and after so many steps. All ranks have one. The events of a step that is kept are done: they are not repeated. Says
// to the copies when layers of a pipeline have moved, so that parts are others, also where neighbours keep none.
class PeerObserver : public Observer {
 public:
  PeerObserver(PartCopies& copies, const TrainConfig& config)
      : copies_(copies),
        keeps_(config.checkpoint.peers > 0),
        moves_layers_(config.parallel.balance && config.parallel.ranks.on("pipeline") > 1) {}

  void training_started(Session& session) override {
    interval_ = {};  // as at a rank that joins
    if (keeps_ && session.group().size() > 1) keep(session.state().run.step, 0);
  }

  void step_finished(const StepEvent& event) override {
    if (moves_layers_ && !event.result.balance.empty()) copies_.begin(event.session, true);
    if (!keeps_ || event.session.group().size() == 1 || event.repeated) return;
    steps_ += event.result.times.total().count();
    const auto step = event.session.state().run.step;
    if (event.last || event.stops) return;
    if (interval_.is_due(step)) keep(step, steps_);
  }

 private:
  // The time of the steps on this rank: all take about the same, since they wait for each other.
  void keep(std::int64_t step, double steps) {
    const auto cost = copies_.keep(steps);
    interval_.copies_kept(step, cost.copying, cost.steps);
    steps_ = 0;
  }

  PartCopies& copies_;
  const bool keeps_, moves_layers_;
  CopyInterval interval_;
  double steps_ = 0;  // seconds that steps have taken since the last copies
};

}  // namespace

std::unique_ptr<Observer> make_peer_observer(const ObserverContext& context, Observer&) {
  return context.copies ? std::make_unique<PeerObserver>(*context.copies, context.config) : nullptr;
}

}  // namespace ddprun::trainer
