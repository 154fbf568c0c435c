#include "ddprun/worker/trainer/observers/observers.h"
#include "ddprun/worker/trainer/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

// Saves every so many steps (checkpoint.every_steps; 0: at the end of each epoch), at the end and where the run stops;
// and what has the best evaluation so far (checkpoint.keep_best).
class CheckpointObserver : public Observer {
 public:
  CheckpointObserver(const TrainConfig::Checkpoint& config, checkpoint::Checkpoints& checkpoints, Observer& all)
      : every_steps_(config.every_steps), keep_best_(config.keep_best), checkpoints_(checkpoints), all_(all) {}

  void step_finished(const StepEvent& event) override {
    const auto& state = event.session.state();
    const bool due = every_steps_ > 0 ? state.run.step % every_steps_ == 0 : event.result.ends_epoch;
    if (!due && !event.last && !event.stops) return;
    all_.before_checkpoint();
    checkpoints_.save(content_of(*state.model, *state.optimizer, state.run));
  }

  void evaluation_finished(const EvaluationEvent& event) override {
    if (!keep_best_ || !event.best) return;
    const auto& state = event.session.state();
    all_.before_checkpoint();
    checkpoints_.save_best(content_of(*state.model, *state.optimizer, state.run));
  }

 private:
  const std::int64_t every_steps_;
  const bool keep_best_;
  checkpoint::Checkpoints& checkpoints_;
  Observer& all_;
};

}  // namespace

std::unique_ptr<Observer> make_checkpoint_observer(const ObserverContext& context, Observer& all) {
  if (!context.checkpoints) return nullptr;
  return std::make_unique<CheckpointObserver>(context.config.checkpoint, *context.checkpoints, all);
}

}  // namespace ddprun::trainer
