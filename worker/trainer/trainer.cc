#include "ddprun/worker/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ddprun/common/log.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/checkpoint/checkpoint.h"
#include "ddprun/worker/data/distributed_sampler.h"
#include "ddprun/worker/data/epoch_plan.h"
#include "ddprun/worker/data/loader.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/distributed_data_parallel.h"
#include "ddprun/worker/tasks/tasks.h"
#include "ddprun/worker/trainer/metrics.h"
#include "ddprun/worker/trainer/replicas.h"
#include "ddprun/worker/trainer/run_checkpoint.h"
#include "ddprun/worker/trainer/schedule.h"
#include "ddprun/worker/trainer/stopwatch.h"

namespace ddprun::trainer {
namespace {

// Streams of the run's seed, so that no two uses draw the same numbers.
constexpr std::uint64_t parameter_stream = 1;
constexpr std::uint64_t dropout_stream = 2;

std::unique_ptr<nn::Module> make_model(const TrainConfig& c, const data::SampleLayout& layout,
                                       const tasks::Task& task) {
  const nn::ModelOptions options{.input = layout.input_shape,
                                 .outputs = task.outputs(),
                                 .hidden = parse_extents(c.model.hidden),
                                 .dropout = c.model.dropout};
  Generator generator(static_cast<std::uint64_t>(c.train.seed), parameter_stream);
  return nn::make_model(c.model.name, options, generator);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainConfig& c, const nn::Module& model) {
  const optim::OptimOptions options{.lr = c.optim.lr,
                                    .momentum = c.optim.momentum,
                                    .weight_decay = c.optim.weight_decay,
                                    .beta1 = c.optim.beta1,
                                    .beta2 = c.optim.beta2,
                                    .eps = c.optim.eps};
  return optim::make_optimizer(c.optim.name, options, model.named_parameters());
}

// Where the time of a step went, on this rank.
struct StepTimes {
  Seconds data{0};
  Seconds compute{0};
  Seconds wait{0};
  Seconds total() const { return data + compute + wait; }
};

std::vector<data::Batch> take(data::Loader& loader, std::int64_t count) {
  std::vector<data::Batch> batches;
  while (static_cast<std::int64_t>(batches.size()) < count) {
    auto batch = loader.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  return batches;
}

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
  return options;
}

}  // namespace

std::string summary_line(const Summary& s) {
  if (s.preempted)
    return fmt::format("preempted at step {}: a checkpoint is saved, the same command resumes from it", s.steps);
  auto line = fmt::format("done: {} step{}, loss {:.4f}", s.steps, s.steps == 1 ? "" : "s", s.evaluation.loss);
  if (s.diverged_at > 0) line += fmt::format(" (not finite since step {})", s.diverged_at);
  return line + fmt::format("{}, parameters sha256:{}", figures_text(s.evaluation), s.parameter_digest);
}

class Trainer::Impl {
 public:
  Impl(const TrainConfig& config, std::map<std::string, std::string> deciding, const Datasets& datasets,
       Context context)
      : config_(config),
        datasets_(datasets),
        group_(context.group),
        progress_(context.progress),
        preemption_(context.preemption),
        task_(tasks::make_task(config.train.task, {.layout = datasets.train->layout()})),
        model_(make_model(config, datasets.train->layout(), *task_)),
        ddp_(*model_, group_, ddp_options(config)),
        optimizer_(make_optimizer(config, *model_)),
        plan_(epoch_plan(config, datasets.train->size(), group_.size())),
        micro_batch_(batch_sizes(config.train, group_.size()).micro) {
    if (!config.checkpoint.dir.empty() && is_first())
      checkpoints_.emplace(
          checkpoint::CheckpointOptions{.folder = config.checkpoint.dir, .keep = config.checkpoint.keep});
    state_ = {.seed = static_cast<std::uint64_t>(config.train.seed),
              .world_size = group_.size(),
              .batch_size = micro_batch_,
              .accumulate = config.train.accumulate,
              .generation = context.generation,
              .lr = config.optim.lr,
              .config = std::move(deciding)};
  }

  Summary run() {
    go_on_from_checkpoint();
    if (is_first() && !config_.metrics.file.empty()) metrics_.emplace(config_.metrics.file, state_.step);
    while (state_.step < total_steps_ && !preempted_) train_epoch();
    if (preempted_) return {.steps = state_.step, .preempted = true};
    if (!evaluation_) {  // the checkpoint was the end
      evaluation_ = evaluate_now();
      check_finite("test loss", evaluation_->loss);
    }
    return {.steps = state_.step,
            .evaluation = *evaluation_,
            .parameter_digest = parameter_digest(*model_),
            .diverged_at = diverged_at_};
  }

 private:
  bool is_first() const { return group_.rank() == 0; }

  void go_on_from_checkpoint() {
    const ResumeOptions options{.checkpoints = checkpoints_ ? &*checkpoints_ : nullptr,
                                .resume = resume_from_name(config_.checkpoint.resume),
                                .settings = state_.config};
    if (const auto saved = resume(options, *model_, *optimizer_, group_)) {
      warn_of_changes(saved->config);
      state_.step = saved->step;
      state_.epoch = saved->epoch;
      state_.samples = saved->samples;
      progress_.line(
          fmt::format("going on from the checkpoint of step {} in {}", saved->step, config_.checkpoint.dir.string()));
    }
    // The data set may have been larger, or the tail that is left out shorter.
    if (plan_.left(state_.samples) == 0) {
      ++state_.epoch;
      state_.samples = 0;
    }
    const Schedule schedule{.plan = plan_, .epochs = config_.train.epochs, .max_steps = config_.train.max_steps};
    total_steps_ = schedule.total_steps(state_.step, state_.epoch, state_.samples);
    if (is_first() && plan_.step_samples < group_.size())
      log::warn("a step of {} samples leaves some of the {} ranks without samples", plan_.step_samples, group_.size());
  }

  void warn_of_changes(const std::map<std::string, std::string>& saved) const {
    if (!is_first()) return;
    for (const auto& [key, value] : state_.config) {
      const auto before = saved.find(key);
      if (before != saved.end() && before->second != value)
        log::warn("the checkpoint was made with {} = {}, this run has {}", key, before->second, value);
    }
  }

  void train_epoch() {
    const auto epoch = state_.epoch;
    const auto order = data::epoch_order(plan_.size, state_.seed, epoch, config_.data.shuffle);
    data::Loader loader(*datasets_.train, batches_of_rank(plan_, order, state_.samples, group_.rank(), micro_batch_),
                        {.workers = config_.data.workers, .prefetch = config_.data.prefetch, .epoch = epoch});
    while (state_.epoch == epoch && state_.step < total_steps_ && !preempted_) {
      StepTimes times;
      Stopwatch watch;
      const auto samples = plan_.samples_at(state_.samples);
      const auto batches = take(loader, (plan_.share(samples, group_.rank()) + micro_batch_ - 1) / micro_batch_);
      times.data = watch.lap();
      train_step(batches, samples, times);
    }
  }

  // One optimizer step on so many samples, of which this rank has these batches, and what follows it: metrics,
  // evaluation, checkpoint, in this order, so that a checkpoint says that all of its step is done.
  void train_step(const std::vector<data::Batch>& batches, std::int64_t samples, StepTimes& times) {
    const auto loss = optimize(batches, samples, times);
    const auto epoch = state_.epoch + 1;
    ++state_.step;
    state_.samples += samples;
    const bool ends_epoch = plan_.left(state_.samples) == 0;
    if (ends_epoch) {
      ++state_.epoch;
      state_.samples = 0;
    }
    if (config_.train.check_replicas) check_replicas(*model_, group_, state_.step);
    report(epoch, loss, samples, times);
    check_finite("loss", loss);
    const bool last = state_.step == total_steps_;
    if (last || (ends_epoch && config_.eval.every_epochs > 0 && epoch % config_.eval.every_epochs == 0))
      evaluate_and_report(epoch);
    const auto every = config_.checkpoint.every_steps;
    preempted_ = preemption_requested_ && !last && !config_.checkpoint.dir.empty();
    if (last || preempted_ || (every > 0 ? state_.step % every == 0 : ends_epoch)) save();
    if (preempted_) group_.barrier()->wait();  // no rank reports "preempted" before rank 0 has saved
  }

  // Forward, backward, update. Returns the mean loss over the samples of all ranks.
  double optimize(const std::vector<data::Batch>& batches, std::int64_t samples, StepTimes& times) {
    Stopwatch watch;
    const auto waited_before = ddp_.waited();
    seed_dropout();
    optimizer_->zero_grad();
    // A preemption request at one rank is summed with the losses: all ranks learn of it in the same step, without an
    // extra message.
    const bool requested = preemption_ && preemption_->requested();
    std::vector<double> sums{0, requested ? 1.0 : 0.0};
    for (std::size_t i = 0; i + 1 < batches.size(); ++i) {
      const auto local = ddp_.no_sync();
      forward_and_backward(batches[i], samples, sums[0]);
    }
    if (batches.empty())
      ddp_.join_pass();
    else
      forward_and_backward(batches.back(), samples, sums[0]);
    const auto reduced_sums = group_.allreduce(span_of(sums), ReduceOp::sum);  // travels during the update
    optimizer_->step();
    times.wait = ddp_.waited() - waited_before;
    times.compute = watch.lap() - times.wait;
    reduced_sums->wait();
    times.wait += watch.lap();
    preemption_requested_ = sums[1] > 0;
    return without_nan_sign(sums[0] / (static_cast<double>(samples) * task_->items_per_sample()));
  }

  // Micro-batches and ranks add up to the gradient of the mean over the step's samples: a batch weighs as many times
  // its mean as it has samples. The world size undoes the division of the gradients' average.
  void forward_and_backward(const data::Batch& batch, std::int64_t samples_of_step, double& loss_sum) {
    const auto [loss, weight] = task_->loss([&](const Variable& input) { return ddp_.forward(input); }, batch);
    loss_sum += loss.value().item() * weight;
    const double share = weight * group_.size() / (static_cast<double>(samples_of_step) * task_->items_per_sample());
    (share == 1.0 ? loss : mul(loss, share)).backward();
  }

  // Dropout is a function of (seed, step, rank): nothing of it has to be saved.
  void seed_dropout() {
    std::uint64_t number = 0;
    for (auto& [name, generator] : model_->named_generators()) {
      Generator mixer(state_.seed, dropout_stream);
      const auto key = mixer.next_u64() + number++;
      *generator =
          Generator(key, (static_cast<std::uint64_t>(state_.step) << 20) | static_cast<std::uint64_t>(group_.rank()));
    }
  }

  void report(std::int64_t epoch, double loss, std::int64_t samples, const StepTimes& times) {
    if (!is_first()) return;
    const auto total = std::max(times.total(), Seconds(1e-9));
    const auto rate = static_cast<double>(samples) / total.count();
    if (metrics_)
      metrics_->add(StepRecord{.step = state_.step,
                               .epoch = epoch,
                               .loss = loss,
                               .lr = optimizer_->lr(),
                               .samples_per_s = rate,
                               .compute = times.compute / total,
                               .wait = times.wait / total});
    spent_ += total;
    samples_seen_ += samples;
    ++steps_here_;
    progress_.step({.step = state_.step,
                    .total_steps = total_steps_,
                    .epoch = epoch,
                    .epochs = config_.train.epochs,
                    .loss = loss,
                    .samples_per_s = static_cast<double>(samples_seen_) / spent_.count(),
                    .left = spent_ / steps_here_ * (total_steps_ - state_.step)});
  }

  Evaluation evaluate_now() {
    ddp_.sync_buffers();  // running statistics are each rank's own while it trains
    return evaluate(*model_, *task_, *datasets_.test, group_,
                    {.batch_size = config_.eval.batch_size, .workers = std::min(config_.data.workers, 1)});
  }

  void evaluate_and_report(std::int64_t epoch) {
    evaluation_ = evaluate_now();
    if (metrics_) metrics_->add(EvalRecord{epoch, evaluation_->loss, evaluation_->accuracy, evaluation_->others});
    progress_.line(evaluation_line(epoch, config_.train.epochs, *evaluation_));
    check_finite("test loss", evaluation_->loss);
  }

  // The losses are the same at all ranks, so all stop at the same step; what is saved is from before it.
  void check_finite(const char* what, double loss) {
    if (std::isfinite(loss) || diverged_at_ > 0) return;
    diverged_at_ = state_.step;
    const auto text = fmt::format("the {} of step {} is {}: training has diverged", what, state_.step, loss);
    if (config_.train.stop_on_nonfinite)
      throw make_error(Errc::unsupported, "{} and stops without a checkpoint of this step (train.stop_on_nonfinite)",
                       text);
    if (is_first()) log::warn("{}, and continues (train.stop_on_nonfinite = false)", text);
  }

  void save() {
    if (!checkpoints_) return;
    state_.lr = optimizer_->lr();
    if (metrics_) metrics_->flush();
    checkpoints_->save(content_of(*model_, *optimizer_, state_));
  }

  const TrainConfig& config_;
  const Datasets& datasets_;
  ProcessGroup& group_;
  Progress& progress_;
  const PreemptionListener* preemption_;
  std::unique_ptr<tasks::Task> task_;
  std::unique_ptr<nn::Module> model_;
  DistributedDataParallel ddp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  const data::EpochPlan plan_;
  const std::int64_t micro_batch_;
  std::optional<checkpoint::Checkpoints> checkpoints_;  // rank 0
  std::optional<MetricsFile> metrics_;                  // rank 0
  checkpoint::RunState state_;
  std::int64_t total_steps_ = 0;
  bool preemption_requested_ = false;  // of some rank, in the latest step
  bool preempted_ = false;             // this run stops after the current step
  std::int64_t diverged_at_ = 0;
  std::optional<Evaluation> evaluation_;  // of the last step's model, when there was one at that step

  Seconds spent_{0};
  std::int64_t samples_seen_ = 0;
  std::int64_t steps_here_ = 0;
};

Trainer::Trainer(const TrainConfig& config, std::map<std::string, std::string> deciding, const Datasets& datasets,
                 Context context)
    : impl_(std::make_unique<Impl>(config, std::move(deciding), datasets, context)) {}
Trainer::~Trainer() = default;
Summary Trainer::run() {
  return impl_->run();
}

}  // namespace ddprun::trainer
