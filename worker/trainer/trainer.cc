#include "worker/trainer/trainer.h"

#include <chrono>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/log.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/comm/error_file.h"
#include "worker/trainer/config/recovery_settings.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/loop.h"
#include "worker/trainer/observers/observers.h"
#include "worker/trainer/recovery/part_copies.h"
#include "worker/trainer/recovery/state_copy.h"
#include "worker/trainer/recovery/state_receiver.h"
#include "worker/trainer/recovery/state_sender.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {
namespace {

using Clock = std::chrono::system_clock;
using NamedSettings = std::map<std::string, std::string>;

plugin::Registry registry_of(const Trainer::Context& context) {
  return context.plugin ? *context.plugin : plugin::Registry{};
}

void warn_of_changes(const NamedSettings& saved, const NamedSettings& own) {
  for (const auto& [key, value] : own) {
    const auto before = saved.find(key);
    if (before != saved.end() && before->second != value)
      log::warn("the checkpoint was made with {} = {}, this run has {}", key, before->second, value);
  }
}

TrainState initial_state(const TrainConfig& config, NamedSettings deciding, const data::SampleLayout& layout,
                         const tasks::Task& task, const Trainer::Context& context) {
  if (!context.prepared_state)
    return make_initial_state(config, std::move(deciding), layout, task, context.generation, registry_of(context),
                              context.device);
  auto state = std::move(*context.prepared_state);
  state.run.generation = context.generation;
  return state;
}

// Completes the line about a recovery.
std::string origin_text(const Catchup& catchup) {
  const auto copies = catchup.lagging.size();
  if (catchup.from == StateSource::applied && copies == 0) return "";
  if (catchup.from == StateSource::applied)
    return fmt::format("; {} rank{} copied the state", copies, copies == 1 ? " has" : "s have");
  const auto repeated = std::max<std::int64_t>(catchup.reached - catchup.step, 0);
  return fmt::format("; {}: {} step{} repeated",
                     catchup.from == StateSource::copies ? "from copies in the memory of neighbours (checkpoint.peers)"
                     : catchup.step > 0                  ? "from the newest checkpoint"
                                                         : "no copy of the lost parts, nor a checkpoint to resume from",
                     repeated, repeated == 1 ? " is" : "s are");
}

constexpr std::size_t mebibytes(std::int64_t count) {
  return static_cast<std::size_t>(count) << 20;
}

int rank_of(const Trainer::Context& context) {
  return context.group ? context.group->rank() : context.recovery->rank();
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(const TrainConfig& config, NamedSettings deciding, const Datasets& datasets, Context context)
      : config_(config),
        samples_of_epoch_(datasets.train->size()),
        progress_(context.progress),
        recovery_(context.recovery),
        deciding_(deciding),
        registry_(registry_of(context)),
        device_(context.device),
        task_(make_task(config, datasets.train->layout(), registry_of(context))),
        state_(initial_state(config, std::move(deciding), datasets.train->layout(), *task_, context)),
        job_{.config = config,
             .datasets = datasets,
             .task = *task_,
             .shared = context.shared,
             .recovers = recovery_ != nullptr} {
    if (recovery_) backup_.emplace(state_, [this](std::int64_t step) { on_applied(step); });
    if (recovery_ && has_sharded_state(config)) copies_.emplace(config.optim.offload);
    is_used_ = context.group != nullptr;
    if (context.group) session_ = make_session(job_, state_, *context.group);
    if (!config.checkpoint.dir.empty())
      checkpoints_.emplace(checkpoint::CheckpointOptions{.folder = config.checkpoint.dir,
                                                         .makes_folder = rank_of(context) == 0,
                                                         .keep = config.checkpoint.keep,
                                                         .timeout = disk_timeout(config.checkpoint)});
    observers_ = make_observers({.config = config,
                                 .progress = context.progress,
                                 .checkpoints = checkpoints_ ? &*checkpoints_ : nullptr,
                                 .preemption = context.preemption,
                                 .summary = summary_,
                                 .training_record = context.training_record,
                                 .wants_standby = recovery_ && wants_standby(config),
                                 .epoch_samples = samples_of_epoch_,
                                 .copies = copies_ ? &*copies_ : nullptr,
                                 .first_of_host = context.first_of_host});
    if (session_) resume_from_checkpoint();
  }

  Summary run() {
    if (session_) warn_of_idle_ranks();
    return recovery_ ? train_and_recover() : *train();
  }

 private:
  // Returns none if the run goes on in another group.
  std::optional<Summary> train() {
    const auto end = recovery_ ? run_loop(*session_, *observers_, &*backup_, [this] { return between_steps(); })
                               : run_loop(*session_, *observers_);
    if (end == LoopEnd::changes) return std::nullopt;
    if (end == LoopEnd::stopped) return Summary{.steps = state_.run.step, .preempted = true};
    summary_.steps = state_.run.step;
    summary_.parameter_digest = parameter_digest([this](const auto& visitor) { session_->visit_parameters(visitor); });
    check_digest(summary_.parameter_digest, session_->group());
    return summary_;
  }

  // Begins to send the state to those that have asked for it. Returns whether this rank asks for a change of the group.
  bool between_steps() {
    while (auto receivers = recovery_->take_receivers()) {
      log::info("those that are to join get the state while the others train");
      senders_.emplace_back(state_, std::move(receivers), mebibytes(config_.checkpoint.heal_memory));
    }
    return recovery_->change_decided();
  }

  void on_applied(std::int64_t step) {
    if (!copies_) recovery_->on_applied(step);
    auto times = std::exchange(recovering_, std::nullopt);
    if (!times || config_.recovery.file.empty()) return;
    times->applied = Clock::now();
    append_recovery(config_.recovery.file, *times);
  }

  // Trains until the run has ended in some group.
  Summary train_and_recover() {
    std::string reason = "this process joins the others";
    bool changes = false;  // all ranks know that the members change: one that is to leave does so in order
    auto noticed = Clock::now();
    if (session_) recovery_->on_applied(state_.run.step);
    if (session_) backup_->begin_session(*session_);
    if (session_ && copies_) {
      copies_->begin(*session_, true);
      warn_of_sole_parts();
    }
    if (!session_ && sends_state()) get_state_ahead();
    recovery_->announce();
    while (true) {
      try {
        if (!session_) {
          const auto resumed =
              std::exchange(changes, false) ? recovery_->change(copy()) : recovery_->recover(reason, copy());
          if (!resumed) return {.steps = state_.run.step, .left = true};
          begin(*resumed, reason, noticed);
        }
        recovery_->watch_for_change();
        if (session_->is_first() && sends_state()) recovery_->offer_state();
        if (const auto summary = train()) {
          recovery_->finish();
          return *summary;
        }
        changes = true;
        noticed = Clock::now();
        reason = "the nodes of the job have changed";
        end_sent_state();
        if (copies_)
          hand_over();
        else if (!recovery_->staying().front())
          observers_->first_rank_leaves(*session_);
      } catch (const Error& error) {
        if (!is_consequence(error.code()) || !recovery_->is_able()) throw;
        if (session_ && !recovering_) noticed = Clock::now();  // a failure within a recovery is part of it
        reason = error.what();
      }
      leave_group();
    }
  }

  // Others may be told to leave while the first ones hand over their parts.
  void hand_over() {
    auto handed_over = std::vector<bool>(static_cast<std::size_t>(session_->group().size()), true);
    for (auto stays = recovery_->staying(); stays != handed_over; stays = recovery_->staying()) {
      copies_->hand_over(stays);
      handed_over = std::move(stays);
    }
  }

  // The events of the last step follow again in the next group where they may not be done.
  void leave_group() {
    senders_.clear();
    if (!session_) return;
    if (copies_) {
      copies_->set_aside(*backup_);
      recovery_->set_holdings(copies_->holdings());
    }
    recovery_->set_events_done(backup_->events_done());
    backup_->end_session();
    session_.reset();
    // Gradients are in memory of the group.
    for (auto& [name, parameter] : state_.model->named_parameters()) parameter.release_grad();
  }

  // A small state is copied faster when its receivers have joined.
  bool sends_state() const {
    constexpr std::size_t smallest = mebibytes(64);
    if (!sends_state_ahead(config_)) return false;
    std::size_t bytes = 0;
    for (const auto& parameter : streamed_parameters(state_)) bytes += parameter.bytes();
    return bytes >= smallest;
  }

  // Gets the state from a run that goes on meanwhile. If that fails it is copied when this process has joined.
  void get_state_ahead() {
    const auto group = recovery_->ask_for_state();
    if (!group) return;
    try {
      receive_state(state_, *backup_, *group, [this] { recovery_->announce(); });
      backup_->forget_hook();
      recovery_->on_applied(state_.run.step);
      recovery_->set_events_done(backup_->events_done());
    } catch (const Error& error) {
      if (!is_consequence(error.code())) throw;
      log::info("the state did not come before this process joins: {}", error.what());
      backup_->set_last(std::nullopt);
    }
  }

  void end_sent_state() {
    for (auto& sender : senders_) {
      if (!sender.finish(rest_of(state_, *backup_))) continue;
      const auto figures = sender.figures();
      const auto waited = std::chrono::duration<double, std::milli>(figures.waited);
      log::info("those that join have the state, {:.0f} MB, by {} steps that waited {:.0f} ms",
                static_cast<double>(figures.bytes) / 1e6, figures.updates, waited.count());
    }
  }

  Recovery::Copy copy() {
    return [this](ProcessGroup& group, const Catchup& catchup, bool receives) {
      if (copies_) return restore(group, catchup);
      if (receives) backup_->forget_hook();
      copy_state(state_, *backup_, group, catchup);
      return state_.run.step;
    };
  }

  // Where ranks have parts of the state they begin with a new one, as a process that joins. After a failure the next
  // group is told what this rank holds then.
  std::int64_t restore(ProcessGroup& group, const Catchup& catchup) try {
    observers_->state_ends();
    renew_state(catchup.from == StateSource::checkpoint);
    session_ = make_session(job_, state_, group);
    copies_->begin(*session_, false);
    if (catchup.from != StateSource::checkpoint) {
      copies_->restore(*backup_, catchup);
    } else {
      backup_->set_last(std::nullopt);
      resume_from_checkpoint();
      backup_->take_hook(*session_);
      copies_->begin_anew();
    }
    return state_.run.step;
  } catch (...) {
    leave_group();
    throw;
  }

  // begins: whether the values count before others replace them.
  void renew_state(bool begins) {
    if (!std::exchange(is_used_, true)) return;
    state_.await_readers();
    const auto generation = state_.run.generation;
    auto layer_seconds = std::move(state_.layer_seconds);
    state_ = {};  // its memory is free before the new one's is taken
    state_ = (begins ? make_initial_state : make_train_state)(config_, deciding_, job_.datasets.train->layout(), *task_,
                                                              generation, registry_, device_);
    state_.layer_seconds = std::move(layer_seconds);
  }

  void begin(const Recovery::Resumed& resumed, const std::string& reason, Clock::time_point noticed) {
    if (resumed.catchup.repeats) backup_->undo_events();
    if (!session_) {
      state_.ranks_agree = true;
      session_ = make_session(job_, state_, resumed.group);
    }
    begin_hook(resumed.catchup.step);
    progress_.set_prints(session_->is_first());
    recovering_ = resumed.times;
    recovering_->noticed = noticed;
    recovering_->ready = Clock::now();
    const auto spent = std::chrono::duration<double, std::milli>(recovering_->ready - noticed);
    if (resumed.group.rank() == resumed.catchup.source)
      log::info("{}: the ranks go on after step {} in generation {} of their group, {:.0f} ms later{}", reason,
                resumed.catchup.step, resumed.generation, spent.count(), origin_text(resumed.catchup));
  }

  void begin_hook(std::int64_t step) {
    const auto begun = backup_->begin_session(*session_);
    if (step == 0 || session_->own_state_group().rank() > 0) return;
    if (begun == HookMemory::Begun::anew)
      log::warn("no rank has what the hook (parallel.hook) keeps from step to step any more: it begins anew");
    if (begun == HookMemory::Begun::mean)
      log::warn(
          "what the hook (parallel.hook) keeps from step to step at a rank was lost with it: the rank begins with the "
          "mean of the others, so the bits are not those of a run without the loss");
  }

  void resume_from_checkpoint() {
    if (!checkpoints_) return;
    const ResumeOptions options{.checkpoints = &*checkpoints_,
                                .resume = resume_from_name(config_.checkpoint.resume),
                                .settings = state_.run.config,
                                .epoch_samples = samples_of_epoch_};
    const auto parts = session_->parts();
    const auto saved = parts && parts->are_divided() ? resume_parts(options, *parts) : resume_whole(options);
    if (!saved) return;
    if (session_->is_first()) warn_of_changes(saved->config, state_.run.config);
    state_.continue_from(*saved);
    progress_.line(
        fmt::format("going on from the checkpoint of step {} in {}", saved->step, config_.checkpoint.dir.string()));
  }

  std::optional<checkpoint::RunState> resume_parts(const ResumeOptions& options, const StateParts& parts) {
    const auto target_of = [](const sharding::ShardedState& state) {
      return stored::LoadTarget{state.tensors(), state.own()};
    };
    const PartsTarget target{target_of(parts.model), target_of(parts.optimizer), target_of(parts.averages)};
    const auto distribute = [&](bool has_averages) {
      session_->parts_restored();
      if (has_averages) state_.ema->set_started();
      return session_->own_state();
    };
    return resume(options, {}, session_->group(), distribute, &target);
  }

  std::optional<checkpoint::RunState> resume_whole(const ResumeOptions& options) {
    const WholeState whole = session_->whole_state();
    const auto distribute = [&](bool has_averages) {
      session_->distribute_state(whole);
      if (has_averages) session_->distribute_averages(whole);
      return session_->own_state();
    };
    auto saved = resume(options, whole, session_->group(), distribute);
    session_->release_whole_state();
    return saved;
  }

  void warn_of_sole_parts() const {
    const auto& options = config_.checkpoint;
    if (!session_->is_first() || session_->group().size() == 1 || options.peers > 0 || !options.dir.empty()) return;
    if (copies_->has_sole_parts())
      log::warn(
          "ranks have parts of the state that no other has, and there are neither copies of them (checkpoint.peers) "
          "nor checkpoints (checkpoint.dir): if a rank is lost, the run begins again at its first step");
  }

  void warn_of_idle_ranks() {
    const auto samples = session_->step_samples();
    const auto ranks = session_->ranks_of_step(), parts = parts_of_step(config_.train, ranks);
    if (!session_->is_first() || std::min<std::int64_t>(samples, parts) >= ranks) return;
    if (parts < ranks)
      log::warn("train.shards = {} leaves some of the {} ranks without samples", parts, ranks);
    else
      log::warn("a step of {} samples leaves some of the {} ranks without samples", samples, ranks);
  }

  const TrainConfig& config_;
  const std::int64_t samples_of_epoch_;
  Progress& progress_;
  Recovery* const recovery_;  // null if a failure of the group ends the run
  const NamedSettings deciding_;
  const plugin::Registry registry_;
  const Device device_;
  const std::unique_ptr<tasks::Task> task_;
  TrainState state_;
  const TrainJob job_;
  std::optional<StepBackup> backup_;                    // set if the run can recover
  std::optional<PartCopies> copies_;                    // set if it can, and ranks have parts of the state
  bool is_used_ = false;                                // whether a session has had the state
  std::unique_ptr<Session> session_;                    // null if there is none in the next group yet
  std::list<StateSender> senders_;                      // of the state, each to a node that is to join
  std::optional<RecoveryTimes> recovering_;             // set until the first step in that group is done
  std::optional<checkpoint::Checkpoints> checkpoints_;  // set if there is a folder for them
  Summary summary_;
  std::unique_ptr<Observer> observers_;
};

void Trainer::Context::abort(const std::string& reason) const {
  if (recovery)
    recovery->abort(reason);
  else
    group->abort(reason);
}

Trainer::Trainer(const TrainConfig& config, std::map<std::string, std::string> deciding, const Datasets& datasets,
                 Context context)
    : impl_(std::make_unique<Impl>(config, std::move(deciding), datasets, context)) {}
Trainer::~Trainer() = default;
Summary Trainer::run() {
  return impl_->run();
}

}  // namespace ddprun::trainer
