#include "ddprun/worker/trainer/observers/observers.h"
#include "ddprun/worker/trainer/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

// Saves every so many steps (checkpoint.every_steps; 0: at the end of each epoch), at the end and where the run stops.
class CheckpointObserver : public Observer {
 public:
  CheckpointObserver(std::int64_t every_steps, checkpoint::Checkpoints* checkpoints, Observer& all)
      : every_steps_(every_steps), checkpoints_(checkpoints), all_(all) {}

  void step_finished(const StepEvent& event) override {
    auto& session = event.session;
    const auto& state = session.state();
    const bool due = every_steps_ > 0 ? state.run.step % every_steps_ == 0 : event.result.ends_epoch;
    if (!due && !event.last && !event.stops) return;
    const auto optimizer_state = session.gather_optimizer_state();
    session.parallelism().collect_parameters();
    if (checkpoints_) {
      all_.before_checkpoint();
      checkpoints_->save(content_of(*state.model, optimizer_state, state.run));
    }
    session.parallelism().drop_whole_parameters();
  }

 private:
  const std::int64_t every_steps_;
  checkpoint::Checkpoints* const checkpoints_;  // null: another rank writes them
  Observer& all_;
};

}  // namespace

std::unique_ptr<Observer> make_checkpoint_observer(const ObserverContext& context, Observer& all) {
  const auto& checkpoint = context.config.checkpoint;
  if (checkpoint.dir.empty()) return nullptr;
  return std::make_unique<CheckpointObserver>(checkpoint.every_steps, context.checkpoints, all);
}

}  // namespace ddprun::trainer
