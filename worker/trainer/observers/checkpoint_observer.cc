#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "common/log.h"
#include "worker/checkpoint/background_save.h"
#include "worker/trainer/config/recovery_settings.h"
#include "worker/trainer/observers/observers.h"
#include "worker/trainer/state/hook_checkpoint.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "worker/trainer/state/state_snapshot.h"

namespace ddprun::trainer {
namespace {

// Saves every so many steps (checkpoint.every_steps; 0: at the end of each epoch), at the end and when the run stops;
// and the state with the best evaluation so far (checkpoint.keep_best). All ranks have one: rank 0 writes what the
// others send, in the background where it can. An error of a save ends the run at the next step.
class CheckpointObserver : public Observer {
 public:
  // saves_at_changes: whether ranks that leave have parts of the state that no other rank has.
  CheckpointObserver(const TrainConfig::Checkpoint& config, bool saves_at_changes, checkpoint::Checkpoints* checkpoints,
                     Observer& all)
      : config_(config), saves_at_changes_(saves_at_changes), checkpoints_(checkpoints), all_(all) {}
  // A run that has failed meanwhile does not ask for the result.
  ~CheckpointObserver() override {
    try {
      if (under_way_) under_way_->result();
    } catch (const std::exception& error) {
      log::error("the checkpoint of step {} could not be saved: {}", saving_, error.what());
    }
  }
  CheckpointObserver(const CheckpointObserver&) = delete;
  CheckpointObserver& operator=(const CheckpointObserver&) = delete;

  void session_started(Session& session) override {
    if (!checkpoints_) return;
    session.state().await_readers = [this] {
      if (under_way_) under_way_->complete_copy();
    };
  }

  void step_finished(const StepEvent& event) override {
    const auto& run = event.session.state().run;
    const auto every = config_.every_steps;
    const bool due = every > 0 ? run.step % every == 0 : event.result.ends_epoch;
    if (under_way_ && under_way_->has_ended()) finish();
    const bool ends = event.last || event.stops || (event.changes && saves_at_changes_);
    const Targets targets{
        .newest = due || ends, .best = std::exchange(is_best_, false), .waits = ends || !config_.background};
    if (targets.newest || targets.best) save(event.session, targets);
  }

  void evaluation_finished(const EvaluationEvent& event) override { is_best_ = config_.keep_best && event.best; }

 private:
  // The folders to which a state is saved, and whether the run waits until it is.
  struct Targets {
    bool newest = false;
    bool best = false;
    bool waits = false;
  };
  // The tensors of a content.
  struct Source {
    GatheredHookState hook;
    WholeState whole;
  };

  // Collective.
  void save(Session& session, Targets targets) {
    if (under_way_)
      log::info("checkpoint of step {}: waits until that of step {} is written", session.state().run.step, saving_);
    finish();
    const auto source =
        std::make_shared<Source>(Source{{session.own_state(), session.group()}, session.gather_state()});
    if (checkpoints_) {
      all_.before_checkpoint();
      auto content = content_of(source->whole, session.state().run);
      content.hook = source->hook.views();
      write(std::move(content), source, session.state(), targets);
    }
    session.release_whole_state();
  }

  void write(checkpoint::Content content, std::shared_ptr<const Source> source, const TrainState& state,
             Targets targets) {
    const auto write_to_folders = [checkpoints = checkpoints_, targets](const checkpoint::Content& complete) {
      // The state says that it is the best one: a run that resumes from the newest has to find it among the best.
      if (targets.best) checkpoints->save_best(complete);
      if (targets.newest) checkpoints->save(complete);
    };
    if (!targets.waits && source->whole.stays) {
      saving_ = state.run.step;
      under_way_ = std::make_unique<checkpoint::BackgroundSave>(snapshot_of(std::move(content), state, memory_),
                                                                std::move(source), write_to_folders);
    } else {
      write_to_folders(content);
      all_.checkpoint_saved(state.run.step, checkpoint::BackgroundSave::Clock::now());
    }
  }

  // Waits for the save under way, if there is one.
  void finish() {
    if (!under_way_) return;
    const auto save = std::exchange(under_way_, nullptr);  // its error is reported once
    all_.checkpoint_saved(saving_, save->result());
  }

  const TrainConfig::Checkpoint& config_;
  const bool saves_at_changes_;
  checkpoint::Checkpoints* const checkpoints_;  // null if another rank writes them
  Observer& all_;
  bool is_best_ = false;  // whether the evaluation after this step was the best one so far
  checkpoint::CopyMemory memory_;
  std::int64_t saving_ = 0;  // the step of the save under way
  std::unique_ptr<checkpoint::BackgroundSave> under_way_;
};

}  // namespace

std::unique_ptr<Observer> make_checkpoint_observer(const ObserverContext& context, Observer& all) {
  const auto& options = context.config.checkpoint;
  if (options.dir.empty()) return nullptr;
  return std::make_unique<CheckpointObserver>(options, has_sharded_state(context.config), context.checkpoints, all);
}

}  // namespace ddprun::trainer
