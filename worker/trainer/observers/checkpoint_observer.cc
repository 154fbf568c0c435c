#include "ddprun/worker/trainer/observers/observers.h"
#include "ddprun/worker/trainer/state/hook_checkpoint.h"
#include "ddprun/worker/trainer/state/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

// Saves every so many steps (checkpoint.every_steps; 0: at the end of each epoch), at the end and when the run stops;
// and the state with the best evaluation so far (checkpoint.keep_best). All ranks have one: rank 0 writes what the
// others send.
class CheckpointObserver : public Observer {
 public:
  CheckpointObserver(const TrainConfig::Checkpoint& config, checkpoint::Checkpoints* checkpoints, Observer& all)
      : every_steps_(config.every_steps), keep_best_(config.keep_best), checkpoints_(checkpoints), all_(all) {}

  void step_finished(const StepEvent& event) override {
    const auto& run = event.session.state().run;
    const bool due = every_steps_ > 0 ? run.step % every_steps_ == 0 : event.result.ends_epoch;
    if (due || event.last || event.stops) save(event.session, &checkpoint::Checkpoints::save);
  }

  void evaluation_finished(const EvaluationEvent& event) override {
    if (keep_best_ && event.best) save(event.session, &checkpoint::Checkpoints::save_best);
  }

 private:
  // Collective.
  void save(Session& session, void (checkpoint::Checkpoints::*write)(const checkpoint::Content&)) {
    const GatheredHookState hook(session.own_state(), session.group());
    const WholeState whole = session.gather_state();
    if (checkpoints_) {
      all_.before_checkpoint();
      auto content = content_of(whole, session.state().run);
      content.hook = hook.views();
      (checkpoints_->*write)(content);
    }
    session.release_whole_state();
  }

  const std::int64_t every_steps_;
  const bool keep_best_;
  checkpoint::Checkpoints* const checkpoints_;  // null if another rank writes them
  Observer& all_;
};

}  // namespace

std::unique_ptr<Observer> make_checkpoint_observer(const ObserverContext& context, Observer& all) {
  const auto& options = context.config.checkpoint;
  if (options.dir.empty()) return nullptr;
  return std::make_unique<CheckpointObserver>(options, context.checkpoints, all);
}

}  // namespace ddprun::trainer
