#include "worker/trainer/session/train_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "worker/autograd/interruption.h"
#include "worker/comm/pending_work.h"
#include "worker/optim/ema.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/session/compute_scope.h"

namespace ddprun::trainer {
namespace {

bool is_due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

// Ends a computation in which some rank is lost or has failed, when it begins its next operation: no rank can use it.
void throw_if_broken(const ProcessGroup& group) {
  if (const auto failure = group.failure()) throw Error(*failure);
}

void wait_for(PendingWork& work, PhaseTimer& timer) {
  work.wait();
  timer.end(&StepTimes::wait);
}

}  // namespace

TrainSession::TrainSession(const TrainJob& job, TrainState& state, ProcessGroup& group, ToldTimes told)
    : Session(state, group),
      config_(job.config),
      recovers_(job.recovers),
      datasets_(job.datasets),
      forms_(
          {.config = config_, .layout = datasets_.train->layout(), .task = job.task, .state = state, .group = group}),
      local_(config_, state, forms_),
      position_(config_, state, epoch_plan(config_, datasets_.train->size(), forms_.groups.samples.size())),
      micro_batch_(micro_batch_size(config_, forms_.groups.samples.size())),
      batches_(config_, datasets_, position_.plan(),
               {.rank = forms_.groups.samples.rank(),
                .ranks = forms_.groups.samples.size(),
                .micro_batch = micro_batch_,
                .balances = config_.parallel.balance && forms_.allows_shares()}),
      values_(forms_.device()),
      runner_(make_step_runner(config_, state, forms_, values_)),
      rules_(make_gradient_rules(
          {.config = config_.optim, .state = state, .local = local_, .values = values_, .gate = forms_.gate.get()},
          forms_.device(), forms_.targets_device())),
      told_times_(std::move(told)),
      rank_times_(group.rank(), group.size()),
      sums_({.group = group, .forms = forms_, .values = values_, .runner = *runner_, .times = rank_times_}) {
  state_.run.world_size = group.size();
  state_.run.batch_size = micro_batch_;
}

StepResult TrainSession::step(StepRequests requests) {
  position_.leave_complete_epoch();
  const auto shards = begin_shards();
  batches_.open(state_.run, shards);
  state_.optimizer->set_lr(position_.learning_rate(state_.run.step));
  StepResult& result = result_ = {};
  progress_ = Progress::passes;
  sent_before_ = forms_.bytes_sent();
  result.epoch = state_.run.epoch + 1;
  result.first = state_.run.samples;
  result.samples = position_.plan().samples_at(result.first);
  PhaseTimer timer(forms_, phase_listener_, result.times);
  auto batches = take_batches(result.samples, timer);
  const std::size_t counted = batches.size();
  for (const auto& batch : batches) result.own_samples += std::ssize(batch.samples);
  const auto largest_count = batches_.largest_count(result.samples, forms_.groups.samples.size());
  while (forms_.axes.needs_equal_passes() && std::ssize(batches) < largest_count)
    batches.push_back(runner_->own_part(batches_.any_sample()));
  timer.end(&StepTimes::data);
  optimize({.batches = batches,
            .counted = counted,
            .shards = shards.value_or(std::vector<int>{}),
            .items = static_cast<double>(result.samples) * forms_.task.items_per_sample(),
            .largest_count = largest_count},
           requests, result, timer);
  rank_times_.step_done(told_times_ ? told_times_(result.times) : result.times);
  complete(result);
  return std::move(result);
}

// On a device an abort may have stopped what was queued.
bool TrainSession::can_end_step() const {
  return recovers_ && !is_on_device() && local_.is_updated_alone() && progress_ != Progress::passes;
}

EndedStep TrainSession::end_step() {
  const auto reached = progress_;
  const TrainingScope scope(config_.train);
  state_.await_readers();
  if (reached == Progress::announced && rules_->apply(result_)) state_.optimizer->step();
  if (state_.ema && !result_.skipped) state_.ema->update();
  complete(result_);
  return {.result = std::move(result_), .stands = reached == Progress::updated};
}

// Makes new values of what this rank updates the whole model's, as after an update, unless each rank has a model of its
// own.
void TrainSession::spread_values() {
  if (!forms_.parallelism.ranks_differ()) forms_.parallelism.parameters_updated();
}

// Evaluates the averages if there are any.
Evaluation TrainSession::evaluate() {
  if (!state_.ema) return evaluate_parameters();
  state_.await_readers();
  std::optional<optim::ExponentialMovingAverage::Scope> averages(*state_.ema);
  spread_values();
  const Evaluation result = evaluate_parameters();
  averages.reset();
  spread_values();
  return result;
}

Evaluation TrainSession::evaluate_parameters() {
  const ComputeScope scope(config_.train);
  const autograd::InterruptionScope interruption([this] { throw_if_broken(group_); });
  const auto evaluated = forms_.parallelism.evaluated_model();
  forms_.parallelism.sync_buffers();  // running statistics are each rank's own within a step
  return runner_->evaluate(*datasets_.test);
}

void TrainSession::balance(StepResult& result) {
  if (result.rank_times.empty()) return;
  result.balance = local_.balance_stages(result.rank_times);
  if (!result.balance.empty())
    rank_times_.restart();
  else
    result.balance = batches_.balance(result.rank_times);
}

// Begins the next step of a run with train.shards. Returns the shards that this rank computes.
std::optional<std::vector<int>> TrainSession::begin_shards() {
  if (!forms_.shard_sums) return std::nullopt;
  const auto filled = std::min(config_.train.shards, position_.plan().samples_at(state_.run.samples));
  return forms_.shard_sums->begin_step(state_.run.step + 1, static_cast<int>(filled));
}

// Returns this rank's share of the next so many samples.
std::vector<data::Batch> TrainSession::take_batches(std::int64_t samples, PhaseTimer& timer) {
  if (forms_.needs_equal_batches()) batches_.require_equal_counts(samples);
  const auto count = batches_.own_count(samples);
  std::vector<data::Batch> batches;
  while (std::ssize(batches) < count) {
    const auto batch = batches_.next();
    if (!batch) break;
    if (is_on_device()) timer.end(&StepTimes::data);
    batches.push_back(runner_->own_part(*batch));
    if (is_on_device()) timer.end(&StepTimes::upload);
  }
  return batches;
}

void TrainSession::optimize(const StepRunner::Step& step, StepRequests requests, StepResult& result,
                            PhaseTimer& timer) {
  if (forms_.task.items_are_tokens()) result.tokens = static_cast<std::int64_t>(step.items);
  forms_.parallelism.zero_grad();
  timer.end(&StepTimes::optimizer);
  const TrainingScope scope(config_.train);
  const autograd::InterruptionScope interruption([this] { throw_if_broken(group_); });
  values_.begin(state_.run.step + 1, step.items);
  rules_->begin_step();
  const bool reads = reads_values(result);
  auto memory = std::make_optional<MemoryWatch>();
  runner_->run(step, timer);
  local_.define_gradients();
  forms_.axes.complete_gradients(local_.parameters());
  if (recovers_) forms_.parallelism.sync_buffers();
  result.activation_peak = memory->peak();
  result.peaks_by_place = {.device = memory->peak(DeviceType::cuda), .host = memory->peak(DeviceType::cpu)};
  memory.reset();
  timer.end(&StepTimes::backward);
  update(requests, reads, result, timer);
}

void TrainSession::update(StepRequests requests, bool reads, StepResult& result, PhaseTimer& timer) {
  rules_->examine(result);
  timer.end(&StepTimes::optimizer);
  sums_.begin(requests, wants_figures(state_.run.step + 2));
  PendingWork reduced_sums;  // is under way during the update, if the losses are known
  const bool known = !reads || values_.are_known();
  progress_ = Progress::announced;
  if (known) reduced_sums.start(sums_.start(reads));
  timer.end(&StepTimes::start);
  // The state does not change before all ranks are known to have these gradients.
  const bool waits = recovers_ && known;
  if (waits) wait_for(reduced_sums, timer);
  state_.await_readers();
  timer.end(&StepTimes::wait);
  const bool accepted = rules_->apply(result);
  if (waits) sums_.take(reads, result);
  if (accepted)
    update_parameters(timer);
  else if (forms_.parallelism.ranks_differ())  // a skipped step counts, as a device skips unseen
    forms_.parallelism.parameters_updated();
  timer.end(&StepTimes::optimizer);
  if (waits) return;
  if (!known) {
    values_.wait();
    timer.end(&StepTimes::optimizer);
    reduced_sums.start(sums_.start(reads));
    timer.end(&StepTimes::start);
  }
  wait_for(reduced_sums, timer);
  sums_.take(reads, result);
}

// Returns whether this step's loss becomes known with it: on a CUDA device only if something that follows the step
// needs it. All ranks decide alike.
bool TrainSession::reads_values(const StepResult& result) const {
  constexpr std::size_t most_unread = 100;
  if (!is_on_device()) return true;
  if (sums_.next_is_read() || values_.steps() == most_unread) return true;
  const auto& run = state_.run;
  const auto& checkpoint = config_.checkpoint;
  const bool ends_epoch = position_.plan().left(run.samples + result.samples) == 0;
  const bool saves = !checkpoint.dir.empty() && is_due(run.step + 1, checkpoint.every_steps);
  const bool evaluates = is_due(run.step + 1, config_.eval.every_steps);
  return ends_epoch || saves || evaluates || run.step + 1 == total_steps();
}

// Returns whether this rank needs them, as it prints a line then.
bool TrainSession::wants_figures(std::int64_t step) const {
  return is_first() && is_due(step, config_.train.log_every);
}

// All gradients are averaged, or the gate stops all kernels of the update if they are not: no abort stops it halfway
// from here on, unless the optimizer exchanges parts of tensors (optim::TensorParts).
void TrainSession::update_parameters(PhaseTimer& timer) {
  {
    const ToldUpdate told(state_.listeners);
    state_.optimizer->step();
  }
  progress_ = Progress::updated;
  timer.end(&StepTimes::optimizer);
  forms_.parallelism.parameters_updated();
  timer.end(&StepTimes::wait);
  if (state_.ema) state_.ema->update();
}

// Ends the step: this rank's part of the state is that after it.
void TrainSession::complete(StepResult& result) {
  progress_ = Progress::passes;
  result.bytes_sent = forms_.bytes_sent() - sent_before_;
  result.model_peaks = forms_.parallelism.take_peaks();
  auto& run = state_.run;
  run.lr = state_.optimizer->lr();
  for (StepFigures& late : result.late_figures) late.skipped_steps = run.skipped_steps += late.skipped ? 1 : 0;
  run.skipped_steps += result.skipped ? 1 : 0;
  if (const auto& scaler = state_.scaler)
    run.loss_scale = {.scale = scaler->state().scale, .good_steps = scaler->state().good_steps};
  result.ends_epoch = position_.advance(1, result.samples);
  if (result.ends_epoch) batches_.close();
}

}  // namespace ddprun::trainer
