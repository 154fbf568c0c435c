#include "ddprun/worker/trainer/session/train_session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/autocast.h"
#include "ddprun/worker/autograd/operation.h"
#include "ddprun/worker/autograd/ops/conv.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/data/distributed_sampler.h"
#include "ddprun/worker/data/tokens.h"
#include "ddprun/worker/nn/random_scope.h"
#include "ddprun/worker/parallel/device_cast_hook.h"
#include "ddprun/worker/parallel/distributed_data_parallel.h"
#include "ddprun/worker/parallel/expert/expert_data_parallel.h"
#include "ddprun/worker/parallel/group_tensors.h"
#include "ddprun/worker/parallel/host_hook.h"
#include "ddprun/worker/parallel/local_sgd/local_sgd.h"
#include "ddprun/worker/parallel/sharded_data_parallel.h"
#include "ddprun/worker/parallel/sole_rank.h"
#include "ddprun/worker/parallel/tensor/cross_entropy.h"
#include "ddprun/worker/reducer/built_in_hooks.h"
#include "ddprun/worker/trainer/config/device_settings.h"
#include "ddprun/worker/trainer/config/group_settings.h"
#include "ddprun/worker/trainer/config/run_settings.h"
#include "ddprun/worker/trainer/session/schedule.h"
#include "ddprun/worker/trainer/state/model_devices.h"
#include "ddprun/worker/trainer/state/run_checkpoint.h"
#include "ddprun/worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

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

std::unique_ptr<CommHook> comm_hook(const TrainConfig& c, ProcessGroup& group, Device device) {
  const auto& p = c.parallel;
  const bool on_device = device.type == DeviceType::cuda;
  if (on_device && (p.hook == "fp16" || p.hook == "bf16"))
    return make_device_cast_hook(p.hook == "fp16" ? DType::float16 : DType::bfloat16, group);
  auto hook = make_hook(p.hook, group,
                        {.power_sgd = {.matrix_approximation_rank = p.matrix_approximation_rank,
                                       .start_powerSGD_iter = p.start_powerSGD_iter,
                                       .use_error_feedback = p.use_error_feedback,
                                       .warm_start = p.warm_start,
                                       .min_compression_rate = p.min_compression_rate,
                                       .random_seed = static_cast<std::uint64_t>(c.train.seed)},
                         .topk_fraction = p.topk_fraction,
                         .one_bit = {.beta1 = c.optim.beta1, .beta2 = c.optim.beta2, .freeze_step = p.freeze_step}});
  return on_device ? make_host_hook(std::move(hook), group) : std::move(hook);
}

// parallel.context and parallel.expert go with data parallelism alone.
ProcessGroup& gradient_group_of(const TrainConfig::Parallel& parallel, const DeviceMesh& mesh) {
  return parallel.context > 1 || parallel.expert > 1 ? mesh.all() : mesh.group("data");
}

std::unique_ptr<DataParallelism> make_parallelism(const TrainConfig& c, nn::Module& model,
                                                  const std::vector<pipeline::Layer>& layers, const DeviceMesh& mesh,
                                                  ExpertParallel* experts) {
  const DdpOptions options = ddp_options(c);
  const auto& p = c.parallel;
  if (p.pipeline > 1) return make_rank_pipeline(c, model, layers, mesh, options);
  ProcessGroup& group = gradient_group_of(p, mesh);
  if (experts) return std::make_unique<ExpertDataParallel>(model, *experts, mesh.group("data"), group, options.limits);
  if (p.strategy == "local_sgd")
    return std::make_unique<LocalSgd>(
        model, group,
        LocalSgdOptions{
            .ddp = options,
            .period = p.local_sgd_period,
            .start_localSGD_iter = p.start_localSGD_iter,
            .outer = {.lr = p.outer_lr, .momentum = p.outer_momentum, .fragment_update_alpha = p.fragment_update_alpha},
            .fragments = p.fragments,
            .fragment_sync_delay = p.fragment_sync_delay});
  if (is_divided_among_cuda_devices(p)) return std::make_unique<SoleRank>(model, group);
  if (p.zero < 2) {
    auto ddp = std::make_unique<DistributedDataParallel>(model, group, options);
    if (p.hook != "allreduce") ddp->register_comm_hook(comm_hook(c, group, device_of(model)));
    return ddp;
  }
  if (p.shard_group > 0)
    naming_key("parallel.shard_group", p.shard_group, [&] {
      return mesh_sizes({{"replicate", mesh_rest}, {"shard", p.shard_group}}, group.size());
    });
  return std::make_unique<ShardedDataParallel>(model, group,
                                               ShardedOptions{.limits = options.limits,
                                                              .shard_parameters = p.zero == 3,
                                                              .reshard_after_forward = p.reshard_after_forward,
                                                              .shard_group = p.shard_group,
                                                              .broadcast_buffers = options.broadcast_buffers});
}

// For who reads the memory.
WholeState on_host(WholeState state) {
  for (auto* const tensors : {&state.model, &state.optimizer, &state.averages})
    for (auto& [name, tensor] : *tensors)
      if (tensor.device().type == DeviceType::cuda) tensor = tensor.to(Device{});
  return state;
}

// A state of which a session's ranks or devices had parts is lost with that session.
void check_whole(const TrainConfig::Parallel& p, const TrainState& state) {
  if (!state.optimizer || state.run.step == 0) return;
  for (const auto& [key, on] : {std::pair("parallel.tensor", p.tensor > 1), std::pair("parallel.expert", p.expert > 1),
                                std::pair("parallel.zero", p.zero > 0), std::pair("parallel.pipeline", p.pipeline > 1),
                                std::pair("parallel.micro_batches", p.micro_batches > 0)})
    if (on)
      throw make_error(Errc::unsupported, "{}: a run goes on in another process group from a checkpoint alone", key);
}

DeviceMesh make_mesh(const TrainConfig::Parallel& p, ProcessGroup& group) {
  return naming_mesh_key(p, [&] { return DeviceMesh(group, mesh_dimensions(p)); });
}

std::unique_ptr<ContextParallel> make_context_parallel(const TrainConfig& c, nn::Module& model,
                                                       const DeviceMesh& mesh) {
  if (c.parallel.context == 1) return nullptr;
  return std::make_unique<ContextParallel>(model, mesh.group("context"));
}

std::unique_ptr<TensorParallel> make_tensor_parallel(const TrainConfig& c, TrainState& state, const DeviceMesh& mesh) {
  if (c.parallel.tensor == 1) return nullptr;
  return naming_mesh_key(c.parallel, [&] {
    return std::make_unique<TensorParallel>(
        *state.model,
        tensor_plan(c.model.name, *state.model, c.parallel.sequence ? Undivided::positions : Undivided::whole),
        mesh.group("tensor"));
  });
}

std::unique_ptr<ExpertParallel> make_expert_parallel(const TrainConfig& c, TrainState& state, const DeviceMesh& mesh) {
  if (c.parallel.expert == 1) return nullptr;
  return naming_mesh_key(
      c.parallel, [&] { return std::make_unique<ExpertParallel>(*state.model, mesh.group("expert"), mesh.all()); });
}

std::unique_ptr<tasks::Task> task_of_divided_scores(const tasks::Task& task, TensorParallel* tensor) {
  if (!tensor || !tensor->divides_scores()) return nullptr;
  return task.with_cross_entropy([&group = tensor->group()](const Variable& scores, const Tensor& targets) {
    return vocabulary_parallel_cross_entropy(scores, targets, group, data::ignored_target);
  });
}

bool is_due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

double sum_over(ProcessGroup& group, double value) {
  group.allreduce({&value, 1, DType::float64}, ReduceOp::sum, {.blocking = true});
  return value;
}

// Of a tensor of an optimizer.
bool belongs_to_any(const std::string& tensor, const std::vector<std::string>& parameters) {
  return std::ranges::any_of(parameters, [&](const auto& parameter) { return tensor.starts_with(parameter + "."); });
}

// Of the groups, the parameters that are among these.
std::vector<optim::ParameterGroup> groups_of(const optim::NamedParameters& own,
                                             std::vector<optim::ParameterGroup> groups) {
  for (auto& group : groups)
    std::erase_if(group.parameters, [&](const auto& each) {
      return std::ranges::none_of(own, [&](const auto& mine) { return mine.first == each.first; });
    });
  return groups;
}

// An operation on memory of the scope that has it, or none. It is awaited when an exception leaves the scope, too,
// since the group writes to the memory until then.
class PendingWork {
 public:
  PendingWork() = default;
  ~PendingWork() {
    try {
      if (work_) wait();
    } catch (const Error&) {
      // The exception under way says more.
    }
  }
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;

  // REQUIRES: there is none.
  void start(WorkPtr work) { work_ = std::move(work); }
  bool started() const { return work_ != nullptr; }
  void wait() { std::exchange(work_, nullptr)->wait(); }

 private:
  WorkPtr work_;
};

}  // namespace

// Measures the phases of a step, one after the other; communication within a phase is counted as such.
class TrainSession::PhaseTimer {
 public:
  PhaseTimer(const TrainSession& session, StepTimes& times)
      : session_(session), times_(times), waited_(session.waited()), starting_(session.parallelism_->starting()) {
    if (session_.phase_listener_) session_.phase_listener_(nullptr, from_, from_);
  }

  void end(Seconds StepTimes::*phase) {
    const auto now_waited = session_.waited(), now_starting = session_.parallelism_->starting();
    const Seconds waited = now_waited - std::exchange(waited_, now_waited);
    const Seconds starting = now_starting - std::exchange(starting_, now_starting);
    const auto now = Clock::now();
    const auto from = std::exchange(from_, now);
    times_.*phase += now - from - waited - starting;
    times_.wait += waited;
    times_.start += starting;
    if (session_.phase_listener_) session_.phase_listener_(phase, from, now);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const TrainSession& session_;
  StepTimes& times_;
  std::chrono::nanoseconds waited_;
  std::chrono::nanoseconds starting_;
  Clock::time_point from_ = Clock::now();
};

TrainSession::TrainSession(const TrainJob& job, TrainState& state, ProcessGroup& group)
    : Session(state, group),
      config_(job.config),
      datasets_(job.datasets),
      mesh_((check_whole(config_.parallel, state), make_mesh(config_.parallel, group))),
      context_(make_context_parallel(config_, *state.model, mesh_)),
      tensor_(make_tensor_parallel(config_, state, mesh_)),
      experts_(make_expert_parallel(config_, state, mesh_)),
      own_task_(task_of_divided_scores(job.task, tensor_.get())),
      task_(own_task_ ? *own_task_ : job.task),
      device_pipeline_(make_device_pipeline(config_, *state.model, datasets_.train->layout(), task_, group)),
      layers_(config_.parallel.pipeline > 1 ? measured_layers(config_, *state.model, datasets_.train->layout(), group)
                                            : std::vector<pipeline::Layer>()),
      stage_balancer_(make_stage_balancer(config_, *state.model, layers_)),
      parallelism_(make_parallelism(config_, *state.model, layers_, mesh_, experts_.get())),
      pipelined_(config_.parallel.pipeline > 1 ? dynamic_cast<pipeline::PipelinedDataParallel*>(parallelism_.get())
                                               : nullptr),
      replicas_(make_data_parallel(config_, *state.model, datasets_.train->layout(), task_)),
      shards_(parallelism_->divided()
                  ? std::make_optional<ParameterShards>(*parallelism_->divided(), parallelism_->shard_group(),
                                                        parallelism_->replica_group())
                  : std::nullopt),
      replicas_of_state_(replica_group()),
      own_parameters_(parallelism_->own_parameters()),
      device_(names_cuda_devices(config_.parallel) ? devices_of(config_.parallel).front() : device_of(*state.model)),
      targets_device_(device_pipeline_ && device_ != Device{} ? devices_of(config_.parallel).back() : device_),
      parameters_(shards_      ? shards_->parameters()
                  : pipelined_ ? pipelined_->pipeline().parameters()
                               : state.model->named_parameters()),
      plan_(epoch_plan(config_, datasets_.train->size(), data_group().size())),
      micro_batch_(micro_batch_size(config_, data_group().size())),
      mixtures_(mixtures_of_experts(*state.model)),
      rank_times_(group.rank(), group.size()),
      values_(device_) {
  if (config_.parallel.sync_batch_norm) sync_batch_norm_.emplace(*state.model, group);
  if (shards_)
    make_optimizer_of_parts(shards_->parameters(), shards_->of(parameter_groups(config_, *state_.model)));
  else if (pipelined_)
    make_optimizer_of_parts(parameters_, groups_of(parameters_, parameter_groups(config_, *state_.model)));
  else if (slices() || (device_pipeline_ && !state_.optimizer))
    make_optimizer_of_parts({}, parameter_groups(config_, *state_.model));
  if (config_.parallel.balance && !pipelined_ && plan_.step_samples >= data_group().size())
    balancer_.emplace(data_group().size(), plan_.step_samples);
  state_.run.world_size = group.size();
  state_.run.batch_size = micro_batch_;
}

void TrainSession::make_optimizer_of_parts(optim::NamedParameters parts, std::vector<optim::ParameterGroup> groups) {
  state_.parts = std::move(parts);
  state_.optimizer = make_optimizer(config_, std::move(groups));
  if (config_.train.ema > 0)
    state_.ema.emplace(state_.parts.empty() ? trained_parameters(*state_.model) : state_.parts, config_.train.ema);
}

// Over the replicas, and the pipeline; what is whole there is sliced over another group, if at all.
const StateDivision& TrainSession::division_of_optimizer() const {
  if (pipelined_) return *pipelined_;
  return shards_ ? static_cast<const StateDivision&>(*shards_) : replicas_of_state_;
}

const SlicedTensors* TrainSession::slices() const {
  if (tensor_) return &tensor_->parts();
  return experts_ ? &experts_->parts() : nullptr;
}

// Whether the division of model and optimizer collects them here: what is sliced stays so.
bool TrainSession::collects() const {
  return replica_group().rank() == 0 && (!pipelined_ || pipelined_->pipeline().group().rank() == 0);
}

WholeState TrainSession::gather_state() {
  WholeState whole{.model = {}, .optimizer = division_of_optimizer().gather(state_.optimizer->state())};
  if (state_.ema && state_.ema->started()) whole.averages = division_of_optimizer().gather(state_.ema->averages());
  parallelism_->collect_parameters();
  whole.model = tensors_of(*state_.model);
  if (!slices()) return on_host(std::move(whole));
  if (!collects()) return {};
  return {.model = slices()->gather(whole.model),
          .optimizer = slices()->gather(whole.optimizer),
          .averages = slices()->gather(whole.averages)};
}

WholeState TrainSession::whole_state() {
  WholeState whole{.model = {}, .optimizer = division_of_optimizer().whole_like(state_.optimizer->state())};
  if (state_.ema) whole.averages = division_of_optimizer().whole_like(state_.ema->averages());
  parallelism_->collect_parameters();
  whole.model = tensors_of(*state_.model);
  if (!slices()) return whole;
  if (!collects()) return {};
  return {.model = slices()->whole_like(whole.model),
          .optimizer = slices()->whole_like(whole.optimizer),
          .averages = slices()->whole_like(whole.averages)};
}

void TrainSession::distribute_state(const WholeState& whole) {
  optim::NamedTensors optimizer = whole.optimizer;
  if (slices()) optimizer = division_of_optimizer().whole_like(state_.optimizer->state());
  if (slices() && collects()) {
    slices()->scatter(whole.model, tensors_of(*state_.model));
    slices()->scatter(whole.optimizer, optimizer);
  }
  parallelism_->distribute_model();
  division_of_optimizer().scatter(optimizer, state_.optimizer->state());
}

void TrainSession::distribute_averages(const WholeState& whole) {
  const auto& own = state_.ema->averages();
  optim::NamedTensors averages = whole.averages;
  if (slices()) averages = division_of_optimizer().whole_like(own);
  if (slices() && collects()) {
    slices()->scatter(whole.averages, averages);
  }
  division_of_optimizer().scatter(averages, own);
  state_.ema->set_started();
}

void TrainSession::visit_parameters(const DataParallelism::Visitor& visit) {
  parallelism_->visit_parameters([&](const std::string& name, const Tensor& value) {
    visit(name, slices() ? slices()->whole(name, value) : value);
  });
}

void TrainSession::visit_replicas(const ReplicaVisitor& visit) {
  if (parallelism_->ranks_differ()) return;
  const bool has_parts = config_.parallel.zero == 3;  // of which there are copies in other shard groups, if at all
  if (has_parts && !parallelism_->replica_group()) return;
  ProcessGroup& group = has_parts ? *parallelism_->replica_group() : replica_group();
  const auto ignored = parse_names(config_.parallel.ignored_parameters);
  for (const auto& [name, parameter] : has_parts || pipelined_ ? parameters_ : state_.model->named_parameters()) {
    if (std::ranges::count(ignored, name) > 0) continue;
    visit(group, name, parameter.value());
    // What is not sliced is the same at the ranks among which the rest is.
    if (slices() && !slices()->divides(name)) visit(slices()->group(), name, parameter.value());
  }
}

std::vector<HookState> TrainSession::own_state() {
  auto all = parallelism_->hook_state();
  for (const auto& [name, tensor] : state_.optimizer->state())
    if (parallelism_->ranks_differ() || belongs_to_any(name, own_parameters_))
      all.push_back({"optimizer/" + name, span_of_tensor(tensor)});
  if (!state_.ema) return all;
  for (const auto& [name, tensor] : state_.ema->averages())
    if (std::ranges::count(own_parameters_, name) > 0) all.push_back({"ema/" + name, span_of_tensor(tensor)});
  return all;
}

ProcessGroup& TrainSession::data_group() const {
  return experts_ ? mesh_.all() : mesh_.group("data");
}

ProcessGroup& TrainSession::gradient_group() const {
  return gradient_group_of(config_.parallel, mesh_);
}

ProcessGroup& TrainSession::replica_group() const {
  return experts_ ? mesh_.group("data") : gradient_group();
}

std::chrono::nanoseconds TrainSession::waited() const {
  std::chrono::nanoseconds sum = parallelism_->waited();
  if (tensor_) sum += tensor_->group().waited();
  if (context_) sum += context_->group().waited();
  if (experts_) sum += experts_->group().waited();
  return sum;
}

std::int64_t TrainSession::total_steps() const {
  const Schedule schedule{.plan = plan_, .epochs = config_.train.epochs, .max_steps = config_.train.max_steps};
  return schedule.total_steps(state_.run.step, state_.run.epoch, state_.run.samples);
}

std::uint64_t TrainSession::bytes_sent() const {
  std::uint64_t sum = mesh_.bytes_sent() + parallelism_->bytes_sent();
  for (const ProcessGroup* group : {&parallelism_->shard_group(), parallelism_->replica_group()})
    if (group && group->size() < gradient_group().size()) sum += group->bytes_sent();  // not one of the mesh
  return sum;
}

StepResult TrainSession::step(bool request_stop) {
  open_epoch();
  state_.optimizer->set_lr(learning_rate());
  StepResult result;
  const auto sent_before = bytes_sent();
  result.epoch = state_.run.epoch + 1;
  result.samples = plan_.samples_at(state_.run.samples);
  PhaseTimer timer(*this, result.times);
  const auto batches = take_batches(result.samples, timer);
  for (const auto& batch : batches) result.own_samples += std::ssize(batch.samples);
  timer.end(&StepTimes::data);
  optimize(batches, request_stop, result, timer);
  result.bytes_sent = bytes_sent() - sent_before;
  result.model_peaks = parallelism_->take_peaks();
  result.experts = take_expert_use(mixtures_);
  rank_times_.step_done(result.times);
  advance(result);
  balance(result);
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
  const auto evaluated = parallelism_->evaluated_model();
  parallelism_->sync_buffers();  // running statistics are each rank's own within a step
  if (pipelined_) return evaluate_pipeline();
  if (context_) return evaluate_positions();
  return trainer::evaluate(*state_.model, task_, *datasets_.test, data_group(),
                           {.batch_size = config_.eval.batch_size,
                            .workers = std::min(config_.data.workers, 1),
                            .forward =
                                [this](const Variable& input) {
                                  return device_pipeline_ ? device_pipeline_->forward(input)
                                                          : parallelism_->forward(input);
                                },
                            .equal_passes = parallelism_->reduces_every_pass(),
                            .device = device_});
}

// Batches pass through the stages one after the other; the last stage's rank looks at results.
Evaluation TrainSession::evaluate_pipeline() {
  auto& ranks = pipelined_->pipeline();
  const auto add = [&](std::span<double> sums, const data::Batch& batch) { add_to(sums, task_, batch, ranks); };
  const auto result = trainer::evaluate(*state_.model, task_, *datasets_.test, data_group(),
                                        {.batch_size = config_.eval.batch_size,
                                         .workers = std::min(config_.data.workers, 1),
                                         .add_to = add,
                                         .parts = &ranks.group()});
  ranks.finish();
  return result;
}

// The ranks of a context group have the same samples; each adds what its positions are.
Evaluation TrainSession::evaluate_positions() {
  const auto forward = [this](const Variable& input) { return parallelism_->forward(input); };
  const auto add = [&](std::span<double> sums, const data::Batch& batch) {
    task_.add_to(sums, forward, own_part(batch));
  };
  return trainer::evaluate(*state_.model, task_, *datasets_.test, data_group(),
                           {.batch_size = config_.eval.batch_size,
                            .workers = std::min(config_.data.workers, 1),
                            .equal_passes = parallelism_->reduces_every_pass(),
                            .add_to = add,
                            .parts = &mesh_.group("context")});
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
  const int rank = data_group().rank();
  loader_.emplace(*datasets_.train, batches_of_rank(plan_, order, run.samples, rank, micro_batch_of(rank)),
                  data::LoaderOptions{.workers = config_.data.workers,
                                      .prefetch = config_.data.prefetch,
                                      .epoch = run.epoch,
                                      .augmentation = datasets_.augmentation ? &*datasets_.augmentation : nullptr,
                                      .mixup = datasets_.mixup ? &*datasets_.mixup : nullptr,
                                      .seed = run.seed});
}

std::int64_t TrainSession::micro_batches(std::int64_t samples, int rank) const {
  const auto most = micro_batch_of(rank);
  return (plan_.share(samples, rank) + most - 1) / most;
}

std::int64_t TrainSession::most_micro_batches(std::int64_t samples) const {
  std::int64_t most = 0;
  for (int r = 0; r < group_.size(); ++r) most = std::max(most, micro_batches(samples, r));
  return most;
}

// A larger share makes larger micro-batches, not more of them.
std::int64_t TrainSession::micro_batch_of(int rank) const {
  if (plan_.shares.empty()) return micro_batch_;
  const auto parts = config_.train.accumulate;
  return (plan_.shares[static_cast<std::size_t>(rank)] + parts - 1) / parts;
}

// From the times of forward and backward passes, which all ranks know: so all decide alike.
void TrainSession::balance(StepResult& result) {
  if (result.rank_times.empty()) return;
  if (stage_balancer_) balance_stages(result);
  if (!balancer_) return;
  std::vector<double> seconds;
  for (const StepTimes& times : result.rank_times)
    seconds.push_back((times.forward + times.backward).count() / RankTimes::window);
  const auto decision = balancer_->observe(seconds);
  if (!decision) return;
  plan_.shares = decision->shares;
  result.balance = decision->reason;
  loader_.reset();  // made again with the new shares
}

// A step of a stage takes as long as that of its slowest rank.
std::vector<double> TrainSession::seconds_of_stages(const std::vector<StepTimes>& ranks) const {
  std::vector<double> stages(static_cast<std::size_t>(mesh_.size("pipeline")));
  const std::size_t ranks_of_stage = ranks.size() / stages.size();  // neighbours: stages are the outermost dimension
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    double& slowest = stages[r / ranks_of_stage];
    slowest = std::max(slowest, (ranks[r].forward + ranks[r].backward).count() / RankTimes::window);
  }
  return stages;
}

void TrainSession::balance_stages(StepResult& result) {
  const auto decision = stage_balancer_->observe(seconds_of_stages(result.rank_times));
  if (!decision) return;
  result.balance = fmt::format("layer {} moves from stage {} to stage {}: {}", layers_[decision->layer].name,
                               decision->from, decision->to, decision->reason);
  cut_at(pipeline::piece_cuts(layers_, decision->cuts));
  rank_times_.restart();
}

// Model and optimizer go on with the same values at other ranks.
void TrainSession::cut_at(const std::vector<std::size_t>& cuts) {
  const auto before = std::move(state_.optimizer);
  const auto whole = pipelined_->gather(before->state());
  pipelined_->cut_at(cuts);
  parameters_ = pipelined_->pipeline().parameters();
  make_optimizer_of_parts(parameters_, groups_of(parameters_, parameter_groups(config_, *state_.model)));
  pipelined_->scatter(whole, state_.optimizer->state());
  state_.optimizer->set_lr(before->lr());
  state_.optimizer->set_step_count(before->step_count());
}

// A rank with fewer micro-batches would miss exchanges of the others' statistics.
void TrainSession::check_equal_batches(std::int64_t samples) const {
  for (int r = 0; r < data_group().size(); ++r) {
    if (micro_batches(samples, r) == micro_batches(samples, 0)) continue;
    throw make_error(Errc::usage,
                     "parallel.sync_batch_norm = true: in a step of {} samples rank 0 has {} micro-batches and rank {} "
                     "{}; they need as many each, for instance with data.drop_last = true",
                     samples, micro_batches(samples, 0), r, micro_batches(samples, r));
  }
}

// This rank's share of the next so many samples.
std::vector<data::Batch> TrainSession::take_batches(std::int64_t samples, PhaseTimer& timer) {
  if (sync_batch_norm_) check_equal_batches(samples);
  const auto count = micro_batches(samples, data_group().rank());
  std::vector<data::Batch> batches;
  while (std::ssize(batches) < count) {
    auto batch = loader_->next();
    if (!batch) break;
    const bool uploads = device_.type == DeviceType::cuda;
    if (uploads) timer.end(&StepTimes::data);
    batches.push_back(context_ ? own_part(*batch) : batch->to(device_, targets_device_));
    if (uploads) timer.end(&StepTimes::upload);
  }
  return batches;
}

// This rank's positions of each sample.
data::Batch TrainSession::own_part(const data::Batch& batch) const {
  data::Batch own;
  own.samples = batch.samples;
  own.epoch = batch.epoch;
  own.add("input", context_->own_positions(batch.input()));
  own.add("target", context_->own_positions(batch.target()));
  return own;
}

void TrainSession::optimize(const std::vector<data::Batch>& batches, bool request_stop, StepResult& result,
                            PhaseTimer& timer) {
  const auto items = static_cast<double>(result.samples) * task_.items_per_sample();
  parallelism_->zero_grad();
  timer.end(&StepTimes::optimizer);
  const autograd::AutocastScope precision(compute_dtype(config_.train));  // weights are cast once a step
  const WinogradScope winograd(config_.train.winograd);
  const auto anomaly = config_.train.detect_anomaly ? std::make_unique<autograd::AnomalyScope>() : nullptr;
  values_.begin(state_.run.step + 1, items);
  const bool reads = reads_values(result);
  auto memory = std::make_optional<MemoryWatch>();
  make_passes(batches, items, result.samples, timer);
  if (tensor_) tensor_->complete_gradients();
  result.activation_peak = memory->peak();
  result.peaks_by_place = {.device = memory->peak(DeviceType::cuda), .host = memory->peak(DeviceType::cpu)};
  memory.reset();
  timer.end(&StepTimes::backward);
  update(request_stop, reads, result, timer);
}

void TrainSession::update(bool request_stop, bool reads, StepResult& result, PhaseTimer& timer) {
  bool prepared = true;
  if (is_on_device()) {
    prepared = prepare_on_device(result);
    timer.end(&StepTimes::optimizer);
  }
  // Requests of one rank are summed with the losses: all ranks learn of them in the same step, without an extra
  // message.
  std::vector<double> sums{request_stop ? 1.0 : 0.0, wants_figures(state_.run.step + 2) ? 1.0 : 0.0};
  PendingWork reduced_sums;  // travels during the update, if the losses are known
  if (!reads || values_.are_known()) reduced_sums.start(start_sums(sums, reads));
  timer.end(&StepTimes::start);
  if (is_on_device() ? prepared : prepare_on_host(result)) update_parameters(timer);
  timer.end(&StepTimes::optimizer);
  if (!reduced_sums.started()) {
    values_.wait();
    timer.end(&StepTimes::optimizer);
    reduced_sums.start(start_sums(sums, reads));
    timer.end(&StepTimes::start);
  }
  reduced_sums.wait();
  timer.end(&StepTimes::wait);
  result.rank_times = rank_times_.take_from(sums);
  result.stop_requested = sums[0] > 0;
  reads_next_ = sums[1] > 0;
  result.has_figures = reads || result.stop_requested;
  if (reads)
    take_figures(std::span(sums).subspan(2, values_.steps()), result);
  else if (result.stop_requested)
    read_late(result);
}

// Whether this step's loss becomes known with it: on a CUDA device only where the host has to wait anyway, or something
// that follows the step needs it. All ranks decide alike.
bool TrainSession::reads_values(const StepResult& result) const {
  constexpr std::size_t most_unread = 100;
  if (!is_on_device() || state_.scaler || state_.outliers) return true;
  if (reads_next_ || values_.steps() == most_unread) return true;
  const auto& run = state_.run;
  const auto& checkpoint = config_.checkpoint;
  const bool ends_epoch = plan_.left(run.samples + result.samples) == 0;
  const bool saves = !checkpoint.dir.empty() && is_due(run.step + 1, checkpoint.every_steps);
  return ends_epoch || saves || run.step + 1 == total_steps();
}

// At this rank, which prints a line then.
bool TrainSession::wants_figures(std::int64_t step) const {
  return is_first() && is_due(step, config_.train.log_every);
}

// Everything that the device computes of the gradients is queued before the host waits for it, which it does once, and
// only where the step itself depends on what is found. Returns whether the step can be made.
bool TrainSession::prepare_on_device(StepResult& result) {
  auto& late = values_.late();
  auto& scaler = state_.scaler;
  auto& outliers = state_.outliers;
  std::optional<std::size_t> not_finite, square_sum, clipped_square_sum;
  if (scaler) {
    result.loss_scale = scaler->scale();
    not_finite = late.add(scaler->unscale_there(parameters_));
  }
  if (outliers) square_sum = late.add(optim::grad_square_sum_there(parameters_));
  if (config_.optim.clip_value > 0) optim::clip_grad_value(parameters_, config_.optim.clip_value);
  Tensor to_clip_by;
  if (config_.optim.clip_norm > 0) {
    to_clip_by = optim::grad_square_sum_there(parameters_);
    clipped_square_sum = late.add(to_clip_by);
  }
  if (scaler || outliers) late.wait();
  if (scaler) {
    result.skipped = late.at(*not_finite) != 0;
    scaler->update(!result.skipped);
    if (result.skipped) return false;
  }
  values_.set_square_sum(square_sum);
  if (outliers) {
    result.skipped = outliers->note(std::sqrt(late.at(*square_sum)));
    if (result.skipped) return false;
  }
  if (!to_clip_by.defined()) return true;
  values_.set_square_sum(clipped_square_sum);
  optim::clip_grads_with_square_sum(parameters_, config_.optim.clip_norm, to_clip_by);
  return true;
}

bool TrainSession::prepare_on_host(StepResult& result) {
  if (!unscale_gradients(result) || !accept_gradients(result)) return false;
  clip_gradients(result);
  return true;
}

// All gradients are averaged (Reducer::finalize()): nothing of the update is queued on a device before, and no abort
// stops it in the middle from here on.
void TrainSession::update_parameters(PhaseTimer& timer) {
  state_.optimizer->step();
  timer.end(&StepTimes::optimizer);
  parallelism_->parameters_updated();
  timer.end(&StepTimes::wait);
  if (state_.ema) state_.ema->update();
}

std::vector<double> TrainSession::own_loss_sums() const {
  auto sums = values_.loss_sums();
  // They are of the same samples as another rank's.
  if (tensor_ && tensor_->group().rank() > 0) std::ranges::fill(sums, 0.0);
  return sums;
}

WorkPtr TrainSession::start_sums(std::vector<double>& sums, bool with_losses) {
  if (with_losses) {
    const auto own = own_loss_sums();
    sums.insert(sums.end(), own.begin(), own.end());
  }
  rank_times_.append_to(sums);
  return group_.allreduce(span_of(sums), ReduceOp::sum);
}

void TrainSession::take_figures(std::span<const double> loss_sums, StepResult& result) {
  result.late_figures = values_.take(loss_sums);
  result.loss = result.late_figures.back().loss;
  if (is_on_device()) result.grad_norm = result.late_figures.back().grad_norm;
  result.late_figures.pop_back();
}

// Of a step that turns out to be the last one here.
void TrainSession::read_late(StepResult& result) {
  values_.wait();
  auto sums = own_loss_sums();
  group_.allreduce(span_of(sums), ReduceOp::sum, {.blocking = true});
  take_figures(sums, result);
}

// At least one, so that this rank takes part in the reduction; as many at all ranks if each pass reduces. Rank 0 has
// the most samples.
void TrainSession::make_passes(const std::vector<data::Batch>& batches, double items, std::int64_t samples,
                               PhaseTimer& timer) {
  if (pipelined_ || device_pipeline_) return train_pipeline(batches, items);
  const auto own = std::ssize(batches);
  const auto passes = parallelism_->reduces_every_pass() ? most_micro_batches(samples) : std::max<std::int64_t>(own, 1);
  for (std::int64_t i = 0; i < passes; ++i) {
    const auto local = i + 1 < passes ? parallelism_->hold_reduction() : nullptr;
    if (i < own)
      forward_and_backward(batches[static_cast<std::size_t>(i)], items, timer);
    else
      parallelism_->join_pass();
  }
}

void TrainSession::train_pipeline(const std::vector<data::Batch>& batches, double items) {
  const auto step = step_functions(task_, batches, state_.run.seed, [this, items](const tasks::WeightedLoss& result) {
    return weighted(result, items);
  });
  if (pipelined_) return pipelined_->train(step);
  parallelism_->prepare_forward();
  {
    const auto local = parallelism_->hold_reduction();
    device_pipeline_->train(step);
  }
  parallelism_->join_backward();
}

// Whether the step can be made. The gradients are averaged by now: what is not finite at one rank is so at all, but for
// those that are a rank's own.
bool TrainSession::unscale_gradients(StepResult& result) {
  auto& scaler = state_.scaler;
  if (!scaler) return true;
  result.loss_scale = scaler->scale();
  const auto holds_at_all = [this](bool finite) { return sum_over_parts(finite ? 0 : 1, true) == 0; };
  const bool ranks_differ = is_divided() || !own_parameters_.empty();
  result.skipped = !scaler->unscale(parameters_, ranks_differ ? holds_at_all : optim::GradScaler::HoldsAtAll());
  scaler->update(!result.skipped);
  return !result.skipped;
}

// The norm is that of the average, so all ranks accept alike.
bool TrainSession::accept_gradients(StepResult& result) {
  auto& outliers = state_.outliers;
  if (!outliers) return true;
  const double norm = std::sqrt(sum_of_squares());
  result.grad_norm = norm;
  result.skipped = outliers->note(norm);
  return !result.skipped;
}

// The gradients are averaged by now, so all ranks clip alike.
void TrainSession::clip_gradients(StepResult& result) const {
  if (config_.optim.clip_value > 0) optim::clip_grad_value(parameters_, config_.optim.clip_value);
  if (config_.optim.clip_norm == 0) return;
  const double norm = std::sqrt(sum_of_squares());
  optim::clip_grads_with_norm(parameters_, config_.optim.clip_norm, norm);
  result.grad_norm = norm;
}

// Of the whole gradient, of which each rank has a part; what is the same at all ranks counts once. A rank's own
// gradients do not count: all ranks need the same norm.
double TrainSession::sum_of_squares() const {
  if (!own_parameters_.empty()) {
    auto averaged = parameters_;
    std::erase_if(averaged, [&](const auto& each) { return std::ranges::count(own_parameters_, each.first) > 0; });
    return optim::grad_square_sum(averaged);
  }
  double value = square_sum_over_slices(parameters_);
  if (pipelined_) value -= square_sum_over_slices(pipelined_->pipeline().repeated());
  return sum_over_parts(value, false);
}

double TrainSession::square_sum_over_slices(const optim::NamedParameters& parameters) const {
  if (!slices()) return optim::grad_square_sum(parameters);
  optim::NamedParameters divided, whole;
  for (const auto& each : parameters) (slices()->divides(each.first) ? divided : whole).push_back(each);
  return optim::grad_square_sum(whole) + sum_over(slices()->group(), optim::grad_square_sum(divided));
}

// Over the ranks among which parameters are divided, or which have some of their own.
double TrainSession::sum_over_parts(double value, bool of_slices) const {
  if (slices() && of_slices) value = sum_over(slices()->group(), value);
  if (pipelined_) return sum_over(pipelined_->pipeline().group(), value);
  if (!own_parameters_.empty()) return sum_over(group_, value);
  return shards_ ? sum_over(parallelism_->shard_group(), value) : value;
}

// Micro-batches and ranks add up to the gradient of the mean over the step's items: a batch weighs as many times its
// mean as it has items. The number of ranks with items of their own undoes the division of the gradients' average.
void TrainSession::forward_and_backward(const data::Batch& batch, double items_of_step, PhaseTimer& timer) {
  const nn::RandomScope random({.seed = state_.run.seed, .epoch = batch.epoch, .samples = batch.samples});
  auto saved_bytes =
      std::exchange(records_saved_bytes_, false) ? std::make_unique<autograd::SavedBytesScope>(saved_bytes_) : nullptr;
  const auto forward = [&](const Variable& input) {
    if (!replicas_) return parallelism_->forward(input);
    parallelism_->prepare_forward();
    return replicas_->forward(input);
  };
  const auto result = task_.loss(forward, batch);
  saved_bytes.reset();
  const Variable loss = weighted(result, items_of_step);
  timer.end(&StepTimes::forward);
  loss.backward();
  timer.end(&StepTimes::backward);
}

Variable TrainSession::weighted(const tasks::WeightedLoss& result, double items_of_step) {
  values_.add_loss(result.loss.value(), result.weight);
  const double scale = state_.scaler ? state_.scaler->scale() : 1;
  const double factor = result.weight * gradient_group().size() / items_of_step * scale;
  for (auto* mixture : mixtures_) mixture->set_loss_factor(factor);
  return factor == 1.0 ? result.loss : mul(result.loss, factor);
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
