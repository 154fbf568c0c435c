#include "ddprun/worker/trainer/train_session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/autocast.h"
#include "ddprun/worker/autograd/operation.h"
#include "ddprun/worker/autograd/ops/conv.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/data/distributed_sampler.h"
#include "ddprun/worker/nn/random_scope.h"
#include "ddprun/worker/parallel/distributed_data_parallel.h"
#include "ddprun/worker/parallel/sharded_data_parallel.h"
#include "ddprun/worker/reducer/built_in_hooks.h"
#include "ddprun/worker/trainer/model_devices.h"
#include "ddprun/worker/trainer/run_checkpoint.h"
#include "ddprun/worker/trainer/schedule.h"

namespace ddprun::trainer {
namespace {

data::EpochPlan epoch_plan(const TrainConfig& c, std::int64_t size, int world_size) {
  data::EpochPlan plan{
      .size = size, .step_samples = batch_sizes(c.train, world_size).step, .world_size = world_size, .divisor = 1};
  if (c.data.drop_last) plan.divisor = c.train.global_batch_size > 0 ? c.train.global_batch_size : world_size;
  if (size == 0) throw Error(Errc::usage, "the training set is empty");
  if (plan.left(0) == 0)
    throw make_error(Errc::usage, "data.drop_last leaves nothing of {} samples: {}", size,
                     c.train.global_batch_size > 0
                         ? fmt::format("a step takes {} (train.global_batch_size)", c.train.global_batch_size)
                         : fmt::format("there are {} ranks", world_size));
  return plan;
}

DdpOptions ddp_options(const TrainConfig& c) {
  constexpr double bytes_per_mib = 1024.0 * 1024.0;
  DdpOptions options;
  options.limits.bytes = static_cast<std::size_t>(c.dist.bucket_mb * bytes_per_mib);
  options.limits.first_bytes = std::min(options.limits.first_bytes, options.limits.bytes);
  const auto& p = c.parallel;
  options.find_unused_parameters = p.find_unused_parameters;
  options.static_graph = p.static_graph;
  options.broadcast_buffers = p.broadcast_buffers;
  options.ignored_parameters = parse_names(p.ignored_parameters);
  options.delay_all_reduce_named_params = parse_names(p.delay_all_reduce_named_params);
  options.param_to_hook_all_reduce = p.param_to_hook_all_reduce;
  options.shard_gradients = c.parallel.zero > 0;
  return options;
}

std::unique_ptr<CommHook> comm_hook(const TrainConfig& c, ProcessGroup& group) {
  const auto& p = c.parallel;
  return make_hook(p.hook, group,
                   {.matrix_approximation_rank = p.matrix_approximation_rank,
                    .start_powerSGD_iter = p.start_powerSGD_iter,
                    .use_error_feedback = p.use_error_feedback,
                    .warm_start = p.warm_start,
                    .min_compression_rate = p.min_compression_rate,
                    .random_seed = static_cast<std::uint64_t>(c.train.seed)});
}

std::unique_ptr<DataParallelism> make_parallelism(const TrainConfig& c, nn::Module& model, ProcessGroup& group) {
  const DdpOptions options = ddp_options(c);
  const auto& p = c.parallel;
  if (p.zero < 2) {
    auto ddp = std::make_unique<DistributedDataParallel>(model, group, options);
    if (p.hook != "allreduce") ddp->register_comm_hook(comm_hook(c, group));
    return ddp;
  }
  if (p.shard_group > 0 && group.size() % p.shard_group != 0)
    throw make_error(Errc::usage, "parallel.shard_group = {}: there are {} ranks, which is no multiple of it",
                     p.shard_group, group.size());
  return std::make_unique<ShardedDataParallel>(model, group,
                                               ShardedOptions{.limits = options.limits,
                                                              .shard_parameters = p.zero == 3,
                                                              .reshard_after_forward = p.reshard_after_forward,
                                                              .shard_group = p.shard_group,
                                                              .broadcast_buffers = options.broadcast_buffers});
}

LrScheduleOptions lr_schedule_options(const TrainConfig::Optim& o, std::int64_t run_length) {
  LrScheduleOptions options{.name = o.schedule,
                            .lr = o.lr,
                            .warmup = o.warmup,
                            .warmup_start = o.warmup_start,
                            .length = o.schedule_length > 0 ? o.schedule_length : run_length,
                            .end_factor = o.end_factor,
                            .gamma = o.gamma,
                            .step_size = o.step_size,
                            .milestones = parse_extents(o.milestones),
                            .pct_start = o.pct_start,
                            .div_factor = o.div_factor,
                            .final_div_factor = o.final_div_factor};
  // A warm-up as long as the run: what would follow it has no length, and is not reached.
  options.length = std::max(options.length, options.warmup + 1);
  return options;
}

}  // namespace

// Measures the phases of a step, one after the other; communication within a phase is counted as such.
class TrainSession::PhaseTimer {
 public:
  PhaseTimer(const DataParallelism& ddp, const PhaseListener& listener, StepTimes& times)
      : ddp_(ddp), listener_(listener), times_(times), waited_(ddp.waited()), starting_(ddp.starting()) {}

  void end(Seconds StepTimes::*phase) {
    const Seconds waited = ddp_.waited() - std::exchange(waited_, ddp_.waited());
    const Seconds starting = ddp_.starting() - std::exchange(starting_, ddp_.starting());
    const auto now = Clock::now();
    const auto from = std::exchange(from_, now);
    times_.*phase += now - from - waited - starting;
    times_.wait += waited;
    times_.start += starting;
    if (listener_) listener_(phase, from, now);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const DataParallelism& ddp_;
  const PhaseListener& listener_;
  StepTimes& times_;
  std::chrono::nanoseconds waited_;
  std::chrono::nanoseconds starting_;
  Clock::time_point from_ = Clock::now();
};

TrainSession::TrainSession(const TrainJob& job, TrainState& state, ProcessGroup& group)
    : config_(job.config),
      datasets_(job.datasets),
      task_(job.task),
      state_(state),
      group_(group),
      parallelism_(make_parallelism(config_, *state.model, group)),
      replicas_(make_data_parallel(config_, *state.model, datasets_.train->layout(), task_)),
      shards_(parallelism_->divided()
                  ? std::make_optional<ParameterShards>(*parallelism_->divided(), parallelism_->shard_group())
                  : std::nullopt),
      parameters_(shards_ ? shards_->parameters() : state.model->named_parameters()),
      plan_(epoch_plan(config_, datasets_.train->size(), group.size())),
      micro_batch_(batch_sizes(config_.train, group.size()).micro),
      rank_times_(group.rank(), group.size()) {
  if (config_.parallel.sync_batch_norm) sync_batch_norm_.emplace(*state.model, group);
  if (shards_) take_shards_of_optimizer();
  state_.run.world_size = group.size();
  state_.run.batch_size = micro_batch_;
}

// The state of another group's parts is lost with that group.
void TrainSession::take_shards_of_optimizer() {
  if (state_.optimizer && state_.run.step > 0)
    throw Error(Errc::unsupported, "parallel.zero: a run goes on in another process group from a checkpoint alone");
  state_.parts = shards_->parameters();
  state_.optimizer = make_optimizer(config_, shards_->of(parameter_groups(config_, *state_.model)));
  if (config_.train.ema > 0) state_.ema.emplace(state_.parts, config_.train.ema);
}

optim::NamedTensors TrainSession::gather_optimizer_state() const {
  return gather(state_.optimizer->state());
}
optim::NamedTensors TrainSession::whole_optimizer_state() const {
  return whole(state_.optimizer->state());
}
void TrainSession::distribute_optimizer_state(const optim::NamedTensors& whole) {
  distribute(whole, state_.optimizer->state());
}

optim::NamedTensors TrainSession::gather_averages() const {
  return state_.ema && state_.ema->started() ? gather(state_.ema->averages()) : optim::NamedTensors{};
}
optim::NamedTensors TrainSession::whole_averages() const {
  return state_.ema ? whole(state_.ema->averages()) : optim::NamedTensors{};
}
void TrainSession::distribute_averages(const optim::NamedTensors& whole) {
  distribute(whole, state_.ema->averages());
  state_.ema->set_started();
}

optim::NamedTensors TrainSession::gather(const optim::NamedTensors& own) const {
  if (!shards_) return own;
  return is_in_first_shard_group() ? shards_->gather_state(own) : optim::NamedTensors{};
}

optim::NamedTensors TrainSession::whole(const optim::NamedTensors& own) const {
  if (!shards_) return own;
  return is_in_first_shard_group() ? shards_->whole_state(own) : optim::NamedTensors{};
}

void TrainSession::distribute(const optim::NamedTensors& whole, const optim::NamedTensors& own) {
  if (!shards_) return broadcast_tensors(whole, group_);
  if (is_in_first_shard_group()) shards_->scatter_state(whole, own);
  if (ProcessGroup* replicas = parallelism_->replica_group()) broadcast_tensors(own, *replicas);
}

std::int64_t TrainSession::total_steps() const {
  const Schedule schedule{.plan = plan_, .epochs = config_.train.epochs, .max_steps = config_.train.max_steps};
  return schedule.total_steps(state_.run.step, state_.run.epoch, state_.run.samples);
}

StepResult TrainSession::step(bool request_stop) {
  open_epoch();
  state_.optimizer->set_lr(learning_rate());
  StepResult result;
  const auto sent_before = group_.bytes_sent();
  result.epoch = state_.run.epoch + 1;
  result.samples = plan_.samples_at(state_.run.samples);
  PhaseTimer timer(*parallelism_, phase_listener_, result.times);
  const auto batches = take_batches(result.samples);
  timer.end(&StepTimes::data);
  optimize(batches, request_stop, result, timer);
  result.bytes_sent = group_.bytes_sent() - sent_before;
  result.model_peaks = parallelism_->take_peaks();
  rank_times_.step_done(result.times);
  advance(result);
  return result;
}

// The averages of this rank's parts become the whole model's as an update does.
Evaluation TrainSession::evaluate() {
  if (!state_.ema) return evaluate_parameters();
  std::optional<optim::ExponentialMovingAverage::Scope> averages(*state_.ema);
  parallelism_->parameters_updated();
  const Evaluation result = evaluate_parameters();
  averages.reset();
  parallelism_->parameters_updated();
  return result;
}

Evaluation TrainSession::evaluate_parameters() {
  const autograd::AutocastScope precision(compute_dtype(config_.train));
  const WinogradScope winograd(config_.train.winograd);
  parallelism_->sync_buffers();  // running statistics are each rank's own while it trains
  return trainer::evaluate(*state_.model, task_, *datasets_.test, group_,
                           {.batch_size = config_.eval.batch_size,
                            .workers = std::min(config_.data.workers, 1),
                            .forward = [this](const Variable& input) { return parallelism_->forward(input); },
                            .equal_passes = parallelism_->reduces_every_pass()});
}

double TrainSession::learning_rate() {
  const bool in_steps = config_.optim.schedule_unit == "steps";
  if (!lr_schedule_)
    lr_schedule_.emplace(lr_schedule_options(config_.optim, in_steps ? total_steps() : config_.train.epochs));
  if (state_.plateau) lr_schedule_->set_lr(state_.plateau->lr());
  return lr_schedule_->at(in_steps ? state_.run.step : state_.run.epoch);
}

void TrainSession::open_epoch() {
  auto& run = state_.run;
  // At a resume: the data set may have been larger, or the tail that is left out shorter.
  if (plan_.left(run.samples) == 0) {
    ++run.epoch;
    run.samples = 0;
  }
  if (loader_) return;
  const auto order = data::epoch_order(plan_.size, run.seed, run.epoch, config_.data.shuffle);
  loader_.emplace(*datasets_.train, batches_of_rank(plan_, order, run.samples, group_.rank(), micro_batch_),
                  data::LoaderOptions{.workers = config_.data.workers,
                                      .prefetch = config_.data.prefetch,
                                      .epoch = run.epoch,
                                      .augmentation = datasets_.augmentation ? &*datasets_.augmentation : nullptr,
                                      .mixup = datasets_.mixup ? &*datasets_.mixup : nullptr,
                                      .seed = run.seed});
}

std::int64_t TrainSession::micro_batches(std::int64_t samples, int rank) const {
  return (plan_.share(samples, rank) + micro_batch_ - 1) / micro_batch_;
}

// A rank with fewer micro-batches would miss exchanges of the others' statistics.
void TrainSession::check_equal_batches(std::int64_t samples) const {
  for (int r = 0; r < group_.size(); ++r) {
    if (micro_batches(samples, r) == micro_batches(samples, 0)) continue;
    throw make_error(Errc::usage,
                     "parallel.sync_batch_norm = true: in a step of {} samples rank 0 has {} micro-batches and rank {} "
                     "{}; they need as many each, for instance with data.drop_last = true",
                     samples, micro_batches(samples, 0), r, micro_batches(samples, r));
  }
}

// This rank's share of the next so many samples.
std::vector<data::Batch> TrainSession::take_batches(std::int64_t samples) {
  if (sync_batch_norm_) check_equal_batches(samples);
  const auto count = micro_batches(samples, group_.rank());
  std::vector<data::Batch> batches;
  while (std::ssize(batches) < count) {
    auto batch = loader_->next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  return batches;
}

void TrainSession::optimize(const std::vector<data::Batch>& batches, bool request_stop, StepResult& result,
                            PhaseTimer& timer) {
  const auto items = static_cast<double>(result.samples) * task_.items_per_sample();
  parallelism_->zero_grad();
  timer.end(&StepTimes::optimizer);
  const autograd::AutocastScope precision(compute_dtype(config_.train));  // weights are cast once a step
  const WinogradScope winograd(config_.train.winograd);
  const auto anomaly = config_.train.detect_anomaly ? std::make_unique<autograd::AnomalyScope>() : nullptr;
  // A request to stop at one rank is summed with the losses: all ranks learn of it in the same step, without an extra
  // message.
  std::vector<double> sums{0, request_stop ? 1.0 : 0.0};
  auto memory = std::make_optional<MemoryWatch>();
  make_passes(batches, items, result.samples, sums[0], timer);
  result.activation_peak = memory->peak();
  memory.reset();
  timer.end(&StepTimes::backward);
  rank_times_.append_to(sums);
  const auto reduced_sums = group_.allreduce(span_of(sums), ReduceOp::sum);  // travels during the update
  timer.end(&StepTimes::start);
  if (unscale_gradients(result) && accept_gradients(result)) {
    clip_gradients(result);
    state_.optimizer->step();
    timer.end(&StepTimes::optimizer);
    parallelism_->parameters_updated();
    timer.end(&StepTimes::wait);
    if (state_.ema) state_.ema->update();
  }
  timer.end(&StepTimes::optimizer);
  reduced_sums->wait();
  timer.end(&StepTimes::wait);
  result.rank_times = rank_times_.take_from(sums);
  result.loss = without_nan_sign(sums[0] / items);
  result.stop_requested = sums[1] > 0;
}

// At least one, so that this rank takes part in the reduction; as many at all ranks if each pass reduces. Rank 0 has
// the most samples.
void TrainSession::make_passes(const std::vector<data::Batch>& batches, double items, std::int64_t samples,
                               double& loss_sum, PhaseTimer& timer) {
  const auto own = std::ssize(batches);
  const auto passes = parallelism_->reduces_every_pass() ? micro_batches(samples, 0) : std::max<std::int64_t>(own, 1);
  for (std::int64_t i = 0; i < passes; ++i) {
    const auto local = i + 1 < passes ? parallelism_->hold_reduction() : nullptr;
    if (i < own)
      forward_and_backward(batches[static_cast<std::size_t>(i)], items, loss_sum, timer);
    else
      parallelism_->join_pass();
  }
}

// Whether the step can be made. The gradients are averaged by now: what is not finite at one rank is so at all.
bool TrainSession::unscale_gradients(StepResult& result) {
  auto& scaler = state_.scaler;
  if (!scaler) return true;
  result.loss_scale = scaler->scale();
  const auto holds_at_all = [this](bool finite) { return sum_over_shards(finite ? 0 : 1) == 0; };
  result.skipped = !scaler->unscale(parameters_, shards_ ? holds_at_all : optim::GradScaler::HoldsAtAll());
  scaler->update(!result.skipped);
  return !result.skipped;
}

// The norm is that of the average, so all ranks accept alike.
bool TrainSession::accept_gradients(StepResult& result) {
  auto& outliers = state_.outliers;
  if (!outliers) return true;
  const double norm = optim::grad_norm(parameters_, sum_of_squares());
  result.grad_norm = norm;
  result.skipped = outliers->note(norm);
  return !result.skipped;
}

// The gradients are averaged by now, so all ranks clip alike.
void TrainSession::clip_gradients(StepResult& result) const {
  if (config_.optim.clip_value > 0) optim::clip_grad_value(parameters_, config_.optim.clip_value);
  if (config_.optim.clip_norm == 0) return;
  result.grad_norm = optim::clip_grad_norm(parameters_, config_.optim.clip_norm, sum_of_squares());
}

// Empty: this rank has all gradients.
optim::SumOverRanks TrainSession::sum_of_squares() const {
  if (!shards_) return {};
  return [this](double squares) { return sum_over_shards(squares); };
}

double TrainSession::sum_over_shards(double value) const {
  parallelism_->shard_group().allreduce({&value, 1, DType::float64}, ReduceOp::sum, {.blocking = true});
  return value;
}

// Micro-batches and ranks add up to the gradient of the mean over the step's items: a batch weighs as many times its
// mean as it has items. The world size undoes the division of the gradients' average.
void TrainSession::forward_and_backward(const data::Batch& batch, double items_of_step, double& loss_sum,
                                        PhaseTimer& timer) {
  const nn::RandomScope random({.seed = state_.run.seed, .epoch = batch.epoch, .samples = batch.samples});
  auto saved_bytes =
      std::exchange(records_saved_bytes_, false) ? std::make_unique<autograd::SavedBytesScope>(saved_bytes_) : nullptr;
  const auto forward = [&](const Variable& input) {
    if (!replicas_) return parallelism_->forward(input);
    parallelism_->prepare_forward();
    return replicas_->forward(input);
  };
  const auto [loss, weight] = task_.loss(forward, batch);
  saved_bytes.reset();
  loss_sum += loss.value().item() * weight;
  timer.end(&StepTimes::forward);
  const double scale = state_.scaler ? state_.scaler->scale() : 1;
  const double factor = weight * group_.size() / items_of_step * scale;
  (factor == 1.0 ? loss : mul(loss, factor)).backward();
  timer.end(&StepTimes::backward);
}

void TrainSession::advance(StepResult& result) {
  auto& run = state_.run;
  ++run.step;
  run.samples += result.samples;
  run.lr = state_.optimizer->lr();
  run.skipped_steps += result.skipped ? 1 : 0;
  if (const auto& scaler = state_.scaler)
    run.loss_scale = {.scale = scaler->state().scale, .good_steps = scaler->state().good_steps};
  state_.note_rules();
  result.ends_epoch = plan_.left(run.samples) == 0;
  if (!result.ends_epoch) return;
  ++run.epoch;
  run.samples = 0;
  loader_.reset();
}

}  // namespace ddprun::trainer
