#include "worker/trainer/session/asynchronous_session.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/data/distributed_sampler.h"
#include "worker/data/loader.h"
#include "worker/nn/random_scope.h"
#include "worker/optim/clip.h"
#include "worker/parallel/sharding/parameter_shards.h"
#include "worker/tensor/device.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/session/compute_scope.h"

namespace ddprun::trainer {
namespace {

const TrainState& without_progress(const TrainState& state) {
  if (state.optimizer && state.run.step > 0)
    throw make_error(Errc::unsupported,
                     "parallel.strategy = parameter_server: a run continues in another process group only from "
                     "a checkpoint");
  return state;
}

const ParameterServerOptions& server_options(const TrainConfig::Parallel& p, ProcessGroup& group) {
  if (p.server.servers >= group.size())
    throw make_error(Errc::usage, "parallel.servers = {} leaves no worker: there are {} ranks", p.server.servers,
                     group.size());
  return p.server;
}

}  // namespace

AsynchronousSession::AsynchronousSession(const TrainJob& job, TrainState& state, ProcessGroup& group)
    : Session(state, group),
      config_(job.config),
      datasets_(job.datasets),
      task_(job.task),
      server_(*without_progress(state).model, group, server_options(config_.parallel, group)),
      position_(config_, state, epoch_plan(config_, datasets_.train->size(), 1)),
      micro_batch_(micro_batch_size(config_, 1)) {
  std::vector<optim::ParameterGroup> groups;  // empty at a worker
  if (server_.is_server()) {
    const ParameterShards shards(server_.sharded_buckets());
    state_.parts = shards.parameters();
    groups = shards.of(parameter_groups(config_, *state_.model));
  }
  state_.optimizer = make_optimizer(config_, std::move(groups));
  state_.run.world_size = group.size();
  state_.run.batch_size = micro_batch_;
}

StepResult AsynchronousSession::step(StepRequests requests) {
  const auto from = Clock::now();
  const auto sent_before = group_.bytes_sent() + server_.peers().bytes_sent();
  auto& run = state_.run;
  if (position_.leave_complete_epoch()) order_.clear();
  if (order_.empty()) order_ = data::epoch_order(position_.plan().size, run.seed, run.epoch, config_.data.shuffle);
  if (phase_listener_) phase_listener_(nullptr, from, from);
  StepResult result;
  result.epoch = run.epoch + 1;
  result.steps = updates_of_round();
  result.samples = std::min(result.steps * position_.plan().step_samples, position_.plan().left(run.samples));
  position_.learning_rate(run.step);
  Share share;
  state_.await_readers();
  server_.round(
      result.steps, [&](std::int64_t number) { compute(number, share); }, [&] { update(share); });
  std::vector<double> sums{share.loss_sum, requests.stop ? 1.0 : 0.0};
  group_.allreduce(span_of(sums), ReduceOp::sum, {.blocking = true});
  const auto items = static_cast<double>(result.samples) * task_.items_per_sample();
  if (task_.items_are_tokens()) result.tokens = static_cast<std::int64_t>(items);
  result.loss = without_nan_sign(sums[0] / items);
  result.stop_requested = sums[1] > 0;
  result.own_samples = share.samples;
  result.activation_peak = share.activation_peak;
  result.times = share.times;
  result.times.wait = Clock::now() - from - share.times.total();
  result.bytes_sent = group_.bytes_sent() + server_.peers().bytes_sent() - sent_before;
  result.staleness = take_staleness();
  advance(result);
  return result;
}

// The round ends at a step with a checkpoint, which is made between two rounds.
std::int64_t AsynchronousSession::updates_of_round() const {
  const auto& run = state_.run;
  const auto to_multiple = [&](std::int64_t of) { return of - run.step % of; };
  auto updates = std::min(to_multiple(config_.parallel.round), position_.plan().steps_left(run.samples));
  if (!config_.checkpoint.dir.empty() && config_.checkpoint.every_steps > 0)
    updates = std::min(updates, to_multiple(config_.checkpoint.every_steps));
  return std::min(updates, total_steps() - run.step);
}

// The number of a worker's update is known only when it begins, so its samples are read then.
std::vector<data::Batch> AsynchronousSession::batches_of(std::int64_t number) const {
  const auto begin = state_.run.samples + number * position_.plan().step_samples;
  const auto samples = position_.plan().samples_at(begin);
  data::BatchList list{.indices = {order_.begin() + begin, order_.begin() + begin + samples}, .ends = {}};
  for (std::int64_t end = 0; end < samples;) list.ends.push_back(end = std::min(end + micro_batch_, samples));
  const auto count = list.ends.size();
  data::Loader loader(*datasets_.train, std::move(list),
                      {.workers = 0,
                       .epoch = state_.run.epoch,
                       .augmentation = datasets_.augmentation ? &*datasets_.augmentation : nullptr,
                       .mixup = datasets_.mixup ? &*datasets_.mixup : nullptr,
                       .seed = state_.run.seed});
  std::vector<data::Batch> batches;
  while (batches.size() < count) batches.push_back(loader.next().value());
  return batches;
}

// Runs at a worker: computes the gradient of the mean over the update's items.
void AsynchronousSession::compute(std::int64_t number, Share& share) {
  auto from = Clock::now();
  const auto batches = batches_of(number);
  std::int64_t samples = 0;
  for (const auto& batch : batches) samples += std::ssize(batch.samples);
  end_phase(&StepTimes::data, from, share);
  const TrainingScope scope(config_.train);
  const MemoryWatch memory;
  for (const auto& batch : batches)
    forward_and_backward(batch, static_cast<double>(samples) * task_.items_per_sample(), share);
  share.activation_peak = std::max(share.activation_peak, memory.peak());
  share.samples += samples;
  from = Clock::now();
  clip_gradients();
  end_phase(&StepTimes::optimizer, from, share);
}

void AsynchronousSession::forward_and_backward(const data::Batch& batch, double items, Share& share) {
  auto from = Clock::now();
  const nn::RandomScope random({.seed = state_.run.seed, .epoch = batch.epoch, .samples = batch.samples});
  auto saved_bytes =
      std::exchange(records_saved_bytes_, false) ? std::make_unique<autograd::SavedBytesScope>(saved_bytes_) : nullptr;
  const auto result = task_.loss([this](const Variable& input) { return (*state_.model)(input); }, batch);
  saved_bytes.reset();
  share.loss_sum += result.loss.value().item() * result.weight;
  const double factor = result.weight / items;
  const Variable loss = factor == 1.0 ? result.loss : mul(result.loss, factor);
  end_phase(&StepTimes::forward, from, share);
  loss.backward();
  end_phase(&StepTimes::backward, from, share);
}

// Runs at a worker, which has the whole gradient of an update; no server has it.
void AsynchronousSession::clip_gradients() const {
  if (config_.optim.clip_value == 0 && config_.optim.clip_norm == 0) return;
  const auto parameters = trained_parameters(*state_.model);
  if (config_.optim.clip_value > 0) optim::clip_grad_value(parameters, config_.optim.clip_value);
  if (config_.optim.clip_norm > 0) optim::clip_grad_norm(parameters, config_.optim.clip_norm);
}

// Runs at a server.
void AsynchronousSession::update(Share& share) {
  auto from = Clock::now();
  state_.optimizer->set_lr(position_.learning_rate(state_.run.step + share.updates++));
  state_.optimizer->step();
  end_phase(&StepTimes::optimizer, from, share);
}

// Ends a phase; the next one begins.
void AsynchronousSession::end_phase(Seconds StepTimes::*phase, Clock::time_point& from, Share& share) const {
  const auto now = Clock::now();
  share.times.*phase += now - from;
  if (phase_listener_) phase_listener_(phase, from, now);
  from = now;
}

std::vector<std::int64_t> AsynchronousSession::take_staleness() {
  auto counts = server_.staleness();
  const auto before = std::exchange(old_staleness_, counts);
  for (std::size_t age = 0; age < before.size(); ++age) counts[age] -= before[age];
  return counts;
}

void AsynchronousSession::advance(StepResult& result) {
  auto& run = state_.run;
  run.lr = position_.learning_rate(run.step + result.steps - 1);
  state_.optimizer->set_lr(run.lr);
  result.ends_epoch = position_.advance(result.steps, result.samples);
  if (result.ends_epoch) order_.clear();
}

Evaluation AsynchronousSession::evaluate() {
  const ComputeScope scope(config_.train);
  return trainer::evaluate(
      *state_.model, task_, *datasets_.test, group_,
      {.batch_size = config_.eval.batch_size, .workers = std::min(config_.data.loader.workers, 1)});
}

sharding::ShardedState AsynchronousSession::state_of_servers() const {
  const auto placements = sharding::placements_of(server_.sharded_buckets(), server_.peers());
  const auto& own = state_.optimizer->state();
  return {sharding::placed_tensors(placements, own, nullptr), own, server_.peers()};
}

// Rank 0 is a server. Between two rounds every rank has all parameters.
WholeState AsynchronousSession::gather_state() {
  WholeState whole{.model = tensors_of(*state_.model), .optimizer = {}};
  if (server_.is_server()) whole.optimizer = state_of_servers().gather();
  whole.stays = true;
  return whole;
}

WholeState AsynchronousSession::whole_state() {
  WholeState whole{.model = tensors_of(*state_.model), .optimizer = {}};
  if (server_.is_server()) whole.optimizer = state_of_servers().whole_like();
  return whole;
}

void AsynchronousSession::distribute_state(const WholeState& whole) {
  server_.distribute_model();
  if (server_.is_server()) state_of_servers().scatter(whole.optimizer);
}

void AsynchronousSession::visit_parameters(const DataParallelism::Visitor& visit) {
  for (const auto& [name, parameter] : state_.model->named_parameters()) visit(name, parameter.value());
}

void AsynchronousSession::visit_replicas(const ReplicaVisitor& visit) {
  for (const auto& [name, parameter] : state_.model->named_parameters()) visit(group_, name, parameter.value());
}

}  // namespace ddprun::trainer
