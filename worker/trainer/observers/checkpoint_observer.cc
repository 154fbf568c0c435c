#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/rounding.h"
#include "worker/checkpoint/background_save.h"
#include "worker/comm/error_file.h"
#include "worker/comm/subgroups.h"
#include "worker/trainer/config/recovery_settings.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/observers/observers.h"
#include "worker/trainer/session/saved_parts.h"
#include "worker/trainer/state/hook_checkpoint.h"
#include "worker/trainer/state/part_save.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "worker/trainer/state/state_snapshot.h"

namespace ddprun::trainer {
namespace {

// The folders to which a state is saved, and whether the run waits until it is.
struct Targets {
  bool newest = false;
  bool best = false;
  bool waits = false;
};

// Saves a state. The state says that it is the best one: a run that resumes from the newest has to find it among the
// best.
void save_whole(checkpoint::Checkpoints& checkpoints, Targets targets, const checkpoint::Content& content) {
  if (targets.best) checkpoints.save_best(content);
  if (targets.newest) checkpoints.save(content);
}

// Returns the memory that a copy of these tensors takes. Those on a device are copied from it in any case.
std::size_t copied_bytes(const WholeState& whole) {
  std::size_t sum = 0;
  for (const auto* tensors : {&whole.model, &whole.optimizer, &whole.averages})
    for (const auto& [name, tensor] : *tensors)
      if (tensor.device().type == DeviceType::cpu) sum += round_up(tensor.bytes(), checkpoint::copy_alignment);
  return sum;
}

// Forms another group of the same ranks.
std::shared_ptr<ProcessGroup> whole_subgroup(ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return subgroup(group, ranks);
}

// The saves of a session whose ranks divide the state. Threads: save() is called on one of any number.
struct DividedSaves {
  SavedParts parts;
  PartsFolder folder;
  const std::shared_ptr<ProcessGroup> group;  // its own: a save runs beside the steps

  void save(Targets targets, const checkpoint::Content& own, const std::string& placements) {
    if (targets.best) save_parts(folder, *group, checkpoint::best_name, own, placements);
    if (targets.newest) save_parts(folder, *group, checkpoint::step_name(own.state.step), own, placements);
  }
};

// Saves every so many steps (checkpoint.every_steps; 0: at the end of each epoch), at the end and when the run stops;
// and the state with the best evaluation so far (checkpoint.keep_best). All ranks have one: rank 0 writes the state if
// it has all of it, otherwise each rank its part; in the background where they can. An error of a save ends the run at
// the next step.
class CheckpointObserver : public Observer {
 public:
  // saves_at_changes: whether ranks that leave have parts of the state that no other rank has.
  CheckpointObserver(const ObserverContext& context, bool saves_at_changes, Observer& all)
      : parallel_(context.config.parallel),
        config_(context.config.checkpoint),
        prepares_memory_(copies_for_checkpoints(context.config)),
        saves_at_changes_(saves_at_changes),
        checkpoints_(*context.checkpoints),
        all_(all) {}
  // A run that has failed meanwhile does not ask for the result.
  ~CheckpointObserver() override {
    try {
      if (under_way_) under_way_->result();
    } catch (const std::exception& error) {
      if (is_first_) log::error("the checkpoint of step {} could not be saved: {}", saving_, error.what());
    }
  }
  CheckpointObserver(const CheckpointObserver&) = delete;
  CheckpointObserver& operator=(const CheckpointObserver&) = delete;

  void state_ends() override {
    try {
      finish();
    } catch (const Error& error) {
      if (!is_consequence(error.code())) throw;  // a save that its group did not survive is not complete
      if (is_first_) log::warn("the checkpoint of step {} is not complete: {}", saving_, error.what());
    }
    divided_.reset();
  }

  void session_started(Session& session) override {
    if (divided_) state_ends();
    is_first_ = session.is_first();
    divide(session);
    prepare_memory(session.state());
    session.state().await_readers = [this] {
      if (under_way_) under_way_->complete_copy();
    };
  }

  void step_finished(const StepEvent& event) override {
    const auto& run = event.session.state().run;
    const auto every = config_.every_steps;
    const bool due = every > 0 ? run.step % every == 0 : event.result.ends_epoch;
    if (under_way_ && under_way_->has_ended()) finish();
    if (!event.result.balance.empty()) divide(event.session);
    const bool ends = event.last || event.stops || (event.changes && saves_at_changes_);
    const Targets targets{
        .newest = due || ends, .best = std::exchange(is_best_, false), .waits = ends || !config_.background};
    if (targets.newest || targets.best) save(event.session, targets);
  }

  // This rank is the one that records the save. Where the file system has locks the next rank 0 would wait for its end
  // in any case.
  void first_rank_leaves(Session& session) override {
    finish();
    session.group().barrier({.blocking = true});
  }

  void evaluation_finished(const EvaluationEvent& event) override { is_best_ = config_.keep_best && event.best; }

 private:
  // The tensors of a content.
  struct Source {
    GatheredHookState hook;
    WholeState whole;
    std::vector<Tensor> parts = {};
  };

  // Finds out what this rank has to save. Collective.
  void divide(Session& session) {
    const auto parts = session.parts();
    if (!parts || !parts->are_divided()) return;
    const auto group = divided_ ? divided_->group : whole_subgroup(session.group());
    divided_ = std::make_shared<DividedSaves>(
        DividedSaves{.parts = {*parts, parallel_, session.state(), session.group().rank(), session.group().size()},
                     .folder = divided_ ? divided_->folder : parts_folder(*group),
                     .group = group});
  }

  // The memory of a copy is taken during the steps before the first save.
  void prepare_memory(const TrainState& state) {
    if (!std::exchange(prepares_memory_, false)) return;
    if (divided_)
      memory_.prepare(divided_->parts.copied_bytes());
    else if (is_first_)
      memory_.prepare(copied_bytes(tensors_of(state)));
  }

  // Collective.
  PartsFolder parts_folder(ProcessGroup& group) const {
    return {.checkpoints = &checkpoints_, .is_keeper = is_first_in_folder(config_.dir, group, disk_timeout(config_))};
  }

  // Collective.
  void save(Session& session, Targets targets) {
    if (under_way_ && is_first_)
      log::info("checkpoint of step {}: waits until that of step {} is written", session.state().run.step, saving_);
    finish();
    auto source = std::make_shared<Source>(Source{.hook = {session.own_state(), session.group()}, .whole = {}});
    if (is_first_) all_.before_checkpoint();
    if (divided_) {
      auto [content, memory] = divided_->parts.content();
      source->parts = std::move(memory);
      content.hook = source->hook.views();
      write(std::move(content), source, session.state(), targets, true,
            [divided = divided_, targets, placements = divided_->parts.placements()](const checkpoint::Content& own) {
              divided->save(targets, own, placements);
            });
      return;
    }
    source->whole = session.gather_state();
    if (is_first_) {
      auto content = content_of(source->whole, session.state().run);
      content.hook = source->hook.views();
      write(std::move(content), source, session.state(), targets, source->whole.stays,
            [&checkpoints = checkpoints_, targets](const checkpoint::Content& whole) {
              save_whole(checkpoints, targets, whole);
            });
    }
    session.release_whole_state();
  }

  // stays: whether the content does not change before TrainState::await_readers().
  void write(checkpoint::Content content, std::shared_ptr<const Source> source, const TrainState& state,
             Targets targets, bool stays, std::function<void(const checkpoint::Content&)> write_to_folders) {
    saving_ = state.run.step;
    if (!targets.waits && stays) {
      under_way_ = std::make_unique<checkpoint::BackgroundSave>(snapshot_of(std::move(content), state, memory_),
                                                                std::move(source), std::move(write_to_folders));
    } else {
      write_to_folders(content);
      record_saved(checkpoint::BackgroundSave::Clock::now());
    }
  }

  // Waits for the save under way, if there is one.
  void finish() {
    if (!under_way_) return;
    const auto save = std::exchange(under_way_, nullptr);  // its error is reported once
    record_saved(save->result());
  }

  void record_saved(checkpoint::BackgroundSave::Clock::time_point time) {
    if (is_first_) all_.checkpoint_saved(saving_, time);
  }

  const TrainConfig::Parallel& parallel_;
  const TrainConfig::Checkpoint& config_;
  bool prepares_memory_;  // at the next session
  const bool saves_at_changes_;
  checkpoint::Checkpoints& checkpoints_;
  bool is_first_ = false;  // at rank 0 of the session
  Observer& all_;
  bool is_best_ = false;  // whether the evaluation after this step was the best one so far
  checkpoint::CopyMemory memory_;
  std::int64_t saving_ = 0;                // the step of the last save
  std::shared_ptr<DividedSaves> divided_;  // null if rank 0 has the whole state
  std::unique_ptr<checkpoint::BackgroundSave> under_way_;
};

}  // namespace

std::unique_ptr<Observer> make_checkpoint_observer(const ObserverContext& context, Observer& all) {
  if (context.config.checkpoint.dir.empty()) return nullptr;
  return std::make_unique<CheckpointObserver>(context, has_sharded_state(context.config), all);
}

}  // namespace ddprun::trainer
