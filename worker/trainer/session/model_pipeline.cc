#include "worker/trainer/session/model_pipeline.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/nn/loss_factor_scope.h"
#include "worker/nn/random_scope.h"
#include "worker/parallel/forms/pipeline/stage.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/state/model_devices.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {
namespace {

pipeline::Schedule schedule_of(const TrainConfig::Parallel& p, int ranks) {
  return pipeline::plan_schedule(
      pipeline::parse_schedule(p.schedule),
      {.ranks = ranks, .micro_batches = p.micro_batches, .virtual_stages = p.virtual_stages});
}

std::vector<std::size_t> cuts_of(const TrainConfig& config, nn::Module& model,
                                 const std::vector<pipeline::Layer>& layers, int stages) {
  const auto count = static_cast<std::size_t>(stages);
  const auto names = parse_names(config.parallel.split);
  return names.empty() ? pipeline::measured_cuts(layers, count) : pipeline::cuts_at(model, names, count);
}

template <class Make>
auto with_keys_named(const TrainConfig::Parallel& p, Make make) {
  try {
    return make();
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    const int stages = p.ranks.on("pipeline");
    throw make_error(Errc::usage, "parallel.{} = {}, parallel.schedule = {}{}: {}", stages > 1 ? "pipeline" : "devices",
                     stages > 1 ? std::to_string(stages) : p.devices, p.schedule,
                     p.split.empty() ? "" : ", parallel.split = " + p.split, e.what());
  }
}

// The scopes of a micro-batch's forward passes.
struct PassScope {
  PassScope(double loss_factor, nn::SampleKeys keys) : factor(loss_factor), random(std::move(keys)) {}

  const nn::LossFactorScope factor;
  const nn::RandomScope random;
};

}  // namespace

bool has_device_pipeline(const TrainConfig::Parallel& config) {
  return config.micro_batches > 0 && config.ranks.on("pipeline") == 1;
}

// The times of ranks differ, and so do those of one rank at two times.
std::vector<pipeline::Layer> measured_layers(const TrainConfig& config, nn::Module& model, const Tensor& input,
                                             std::vector<double>& seconds, ProcessGroup& all) {
  const auto& p = config.parallel;
  if (p.micro_batches == 0 || !(p.split.empty() || p.balance)) return {};
  std::vector<std::int64_t> first{seconds.empty() ? all.size() : all.rank()};
  allreduce(all, first, ReduceOp::min);
  const bool known = first[0] < all.size();
  auto layers = known ? pipeline::layers_of(model) : pipeline::measured_layers(model, input);
  if (!known)
    for (const auto& layer : layers) seconds.push_back(layer.seconds);
  seconds.resize(layers.size());
  all.broadcast(span_of(seconds), known ? static_cast<int>(first[0]) : 0, {.blocking = true});
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].seconds = seconds[i];
  return layers;
}

std::unique_ptr<pipeline::PipelinedDataParallel> make_rank_pipeline(const TrainConfig& config, nn::Module& model,
                                                                    const std::vector<pipeline::Layer>& layers,
                                                                    ProcessGroup& stages, ProcessGroup& replicas,
                                                                    pipeline::StageParallelism of_stages) {
  return with_keys_named(config.parallel, [&] {
    const auto schedule = schedule_of(config.parallel, stages.size());
    const auto cuts = cuts_of(config, model, layers, schedule.stages);
    return std::make_unique<pipeline::PipelinedDataParallel>(model, stages, replicas, cuts, schedule,
                                                             std::move(of_stages));
  });
}

std::optional<pipeline::StageBalancer> make_stage_balancer(const TrainConfig& config, nn::Module& model,
                                                           const std::vector<pipeline::Layer>& layers) {
  if (!config.parallel.balance || config.parallel.ranks.on("pipeline") == 1) return std::nullopt;
  return with_keys_named(config.parallel, [&] {
    constexpr double least_seconds = 1e-9;
    std::vector<double> costs;
    for (const auto& layer : layers) costs.push_back(std::max(layer.seconds, least_seconds));
    const auto cuts = cuts_of(config, model, layers, config.parallel.ranks.on("pipeline"));
    return std::make_optional<pipeline::StageBalancer>(std::move(costs), pipeline::layer_cuts(layers, cuts));
  });
}

std::unique_ptr<pipeline::DevicePipeline> make_device_pipeline(const TrainConfig& config, nn::Module& model,
                                                               const data::SampleLayout& layout,
                                                               const tasks::Task& task, ProcessGroup& group) {
  if (!has_device_pipeline(config.parallel)) return nullptr;
  return with_keys_named(config.parallel, [&] {
    const auto devices = devices_of(config.parallel);
    const auto schedule = schedule_of(config.parallel, static_cast<int>(devices.size()));
    std::vector<double> seconds;
    const auto layers =
        measured_layers(config, model, empty_batch(layout, micro_batch_size(config, group.size())), seconds, group);
    const auto cuts = cuts_of(config, model, layers, schedule.stages);
    const auto replica = [&] { return make_model(config.model, layout, task.outputs(), config.train.seed); };
    return std::make_unique<pipeline::DevicePipeline>(model, replica, devices, schedule, cuts);
  });
}

pipeline::StepFunctions step_functions(const tasks::Task& task, const std::vector<data::Batch>& batches,
                                       const StepPasses& passes) {
  const auto at = [&batches](int m) -> const data::Batch& { return batches[static_cast<std::size_t>(m)]; };
  return {.micro_batches = static_cast<int>(batches.size()),
          .samples = [at](int m) { return at(m).size(); },
          .input = [at](int m) { return Variable(at(m).input()); },
          .loss =
              [at, &task, add = passes.add](int m, const Variable& result) {
                const auto forward = [&](const Variable&) { return result; };
                return add(static_cast<std::size_t>(m), task.loss(forward, at(m)));
              },
          .scope =
              [at, seed = passes.seed, factors = passes.loss_factors](int m) {
                return std::make_shared<PassScope>(
                    factors[static_cast<std::size_t>(m)],
                    nn::SampleKeys{.seed = seed, .epoch = at(m).epoch, .samples = at(m).samples});
              },
          .around = {}};
}

void add_to(std::span<double> sums, const tasks::Task& task, const data::Batch& batch,
            pipeline::PipelinedDataParallel& ranks) {
  ranks.evaluate(0, {.micro_batches = 1,
                     .samples = [&](int) { return batch.size(); },
                     .input = [&](int) { return Variable(batch.input()); },
                     .loss =
                         [&](int, const Variable& result) {
                           task.add_to(
                               sums, [&](const Variable&) { return result; }, batch);
                           return result;
                         },
                     .scope = {},
                     .around = {}});
}

}  // namespace ddprun::trainer
