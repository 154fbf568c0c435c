#include "worker/trainer/commands/dry_step.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "common/rounding.h"
#include "worker/comm/backends/local/dry_group.h"
#include "worker/tensor/shape_only.h"
#include "worker/trainer/commands/session_traffic.h"
#include "worker/trainer/commands/step_traffic.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/session/compute_scope.h"
#include "worker/trainer/session/train_session.h"
#include "worker/trainer/state/model_devices.h"

namespace ddprun::trainer {
namespace {

// Samples of a layout, all of them zero.
class EmptySamples final : public data::Dataset {
 public:
  EmptySamples(std::int64_t size, data::SampleLayout layout) : size_(size), layout_(std::move(layout)) {}

  std::int64_t size() const override { return size_; }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t, std::span<std::byte> input, std::span<std::byte> target) const override {
    std::ranges::fill(input, std::byte{0});
    std::ranges::fill(target, std::byte{0});
  }

 private:
  const std::int64_t size_;
  const data::SampleLayout layout_;
};

Datasets empty_datasets(const TrainConfig& config, const data::SampleLayout& layout, std::int64_t size) {
  Datasets datasets{.train = std::make_unique<EmptySamples>(size, layout),
                    .test = std::make_unique<EmptySamples>(1, layout)};
  if (config.data.mixup > 0) datasets.mixup.emplace(config.data.mixup, layout);
  return datasets;
}

// The job that is run in place of the given one.
struct DryJob {
  TrainConfig config;
  double micro_batches = 1;  // those of the given one's step, for each of this one's
};

DryJob dry_job(const TrainConfig& given, int ranks) {
  DryJob job{.config = given};
  TrainConfig& c = job.config;
  c.data.loader.workers = 0;  // samples are read by this thread
  c.train.epochs = 1;
  c.train.max_steps = 0;
  c.train.check_replicas = 0;
  c.parallel.hook = "allreduce";
  c.parallel.balance = false;
  constexpr std::int64_t alike = 2;  // later micro-batches add to gradients like the second one
  const int sharing = ranks / ranks_of_sample(c.parallel.ranks);
  const std::int64_t count = micro_batches_of_step(c, sharing);
  if (c.parallel.micro_batches > 0 || count <= alike) return job;
  c.train.batch_size = batch_sizes(c.train, sharing).micro;
  c.train.global_batch_size = 0;
  c.train.accumulate = alike;
  job.micro_batches = static_cast<double>(count) / alike;
  return job;
}

// In a first step with parallel.zero = 3 the order in which parameters are used is not known yet.
std::size_t steps_of(const TrainConfig& config) {
  return config.parallel.zero == 3 ? 2 : 1;
}

// Tells a stage of a pipeline what it receives, for micro-batches of all sizes that a step has.
void assume_inputs(const TrainConfig& config, const data::SampleLayout& layout, TrainState& state,
                   const ParallelForms& forms, int sharing) {
  const std::int64_t micro = micro_batch_size(config, sharing);
  const std::int64_t samples = divide_up<std::int64_t>(batch_sizes(config.train, sharing).step, sharing);
  std::set<std::int64_t> sizes{std::min(micro, samples)};
  if (samples % micro != 0) sizes.insert(samples % micro);
  const TrainingScope scope(config.train);
  state.model->train(false);
  for (const std::int64_t size : sizes)
    forms.pipelined->assume_inputs(forms.axes.own_positions(empty_batch(layout, size)));
  state.model->train(true);
}

}  // namespace

bool has_dry_step(const TrainConfig& config) {
  const auto& p = config.parallel;
  return p.devices.empty() && (p.strategy == "ddp" || p.strategy == "local_sgd");
}

RankUse dry_step(const TrainConfig& given, const data::SampleLayout& layout, int ranks, int rank,
                 const plugin::Registry& registry) {
  const ShapeOnlyScope shapes;
  const DryJob job = dry_job(given, ranks);
  const TrainConfig& config = job.config;
  const int sharing = ranks / ranks_of_sample(config.parallel.ranks);
  const std::size_t steps = steps_of(config);
  const auto datasets =
      empty_datasets(config, layout, batch_sizes(config.train, sharing).step * static_cast<std::int64_t>(steps));
  const auto group = comm::make_dry_group(rank, ranks);
  const auto task = make_task(config, layout, registry);
  auto state = make_train_state(config, {}, layout, *task, 0, registry);
  TrainSession session({.config = config, .datasets = datasets, .task = *task}, state, *group);
  const ParallelForms& forms = session.forms();
  if (forms.pipelined) assume_inputs(config, layout, state, forms, sharing);

  const double operations_before = operations_left_out();
  const auto sent_before = static_cast<double>(sent_within_replica(forms, 1));
  std::size_t activations = 0;
  ModelPeaks peaks;
  for (std::size_t i = 0; i < steps; ++i) {
    const auto result = session.step(false);
    activations = std::max(activations, result.activation_peak);
    peaks = result.model_peaks;
  }
  const double share = job.micro_batches / static_cast<double>(steps);
  RankUse use = rank_use(config, session, activations, peaks, 1);
  use.sent_within = share * (use.sent_within - sent_before);
  use.operations = share * (operations_left_out() - operations_before);
  return use;
}

}  // namespace ddprun::trainer
