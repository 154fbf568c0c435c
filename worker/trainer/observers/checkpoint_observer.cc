#include "ddprun/worker/trainer/hook_checkpoint.h"
#include "ddprun/worker/trainer/observers/observers.h"
#include "ddprun/worker/trainer/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

// Saves every so many steps (checkpoint.every_steps; 0: at the end of each epoch), at the end and where the run stops.
// The other ranks send rank 0 the state of their communication hooks.
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
    const GatheredHookState hook(session.hook_state(), session.group());
    if (!checkpoints_) return;
    all_.before_checkpoint();
    auto content = content_of(*state.model, optimizer_state, state.run);
    content.hook = hook.views();
    checkpoints_->save(content);
  }

 private:
  const std::int64_t every_steps_;
  checkpoint::Checkpoints* const checkpoints_;  // null: another rank writes them
  Observer& all_;
};

}  // namespace

std::unique_ptr<Observer> make_checkpoint_observer(const ObserverContext& context, Observer& all) {
  const auto& options = context.config.checkpoint;
  if (options.dir.empty()) return nullptr;
  return std::make_unique<CheckpointObserver>(options.every_steps, context.checkpoints, all);
}

}  // namespace ddprun::trainer
