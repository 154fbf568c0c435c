#include "worker/trainer/state/train_state.h"

#include <cmath>
#include <utility>

#include "common/error.h"
#include "worker/nn/models.h"
#include "worker/nn/quantization/quantize.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/tensor/memory_owner.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/state/fine_tuning.h"
#include "worker/trainer/state/model_devices.h"
#include "worker/trainer/state/random_streams.h"
#include "worker/trainer/state/teacher.h"

namespace ddprun::trainer {
namespace {

void make_quantization_aware(const TrainConfig& config, nn::Module& model) {
  if (nn::make_quantization_aware(model) > 0) return;
  throw make_error(Errc::usage, "train.quantization_aware = true: model {} has no layer that can be quantized",
                   config.model.name);
}

optim::PlateauOptions plateau_options(const TrainConfig::Optim& o) {
  optim::PlateauOptions options = o.plateau;
  options.lr = o.lr;
  return options;
}

}  // namespace

optim::NamedParameters trained_parameters(const nn::Module& model) {
  auto parameters = model.named_parameters();
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  return parameters;
}

nn::Recompute recompute_of(const TrainConfig::Train& t) {
  if (t.recompute == "blocks") return nn::Recompute::blocks;
  return t.recompute == "all" ? nn::Recompute::all : nn::Recompute::none;
}

std::unique_ptr<tasks::Task> make_task(const TrainConfig& config, const data::SampleLayout& layout,
                                       const plugin::Registry& registry) {
  if (registry.tasks.contains(config.train.task))
    return registry.tasks.make("train.task", config.train.task, {.layout = layout});
  return tasks::make_task(config.train.task,
                          {.layout = layout, .distillation = make_distillation_options(config, layout)});
}

std::unique_ptr<tasks::Task> make_evaluation_task(const TrainConfig& config, const data::SampleLayout& layout,
                                                  const plugin::Registry& registry) {
  if (config.train.task == "distillation") return tasks::make_task("classification", {.layout = layout});
  return make_task(config, layout, registry);
}

void TrainState::continue_from(const checkpoint::RunState& saved) {
  run.step = saved.step;
  run.epoch = saved.epoch;
  run.samples = saved.samples;
  run.skipped_steps = saved.skipped_steps;
  run.lr = saved.lr;
  run.ledger = saved.ledger;
  optimizer->set_step_count(saved.step - saved.skipped_steps);
  run.best_loss = saved.best_loss;
  if (plateau && saved.plateau) plateau->set_state(*saved.plateau);
  if (outliers) outliers->set_norms(saved.gradient_norms);
  record_rules();
  if (!scaler || !saved.loss_scale) return;
  run.loss_scale = saved.loss_scale;
  scaler->set_state({.scale = saved.loss_scale->scale, .good_steps = saved.loss_scale->good_steps});
}

void TrainState::record_rules() {
  if (plateau) run.plateau = plateau->state();
  if (outliers) run.gradient_norms = outliers->norms();
}

bool TrainState::record_evaluation(double loss) {
  if (plateau) plateau->note(loss);
  record_rules();
  if (!std::isfinite(loss) || (run.best_loss && *run.best_loss <= loss)) return false;
  run.best_loss = loss;
  return true;
}

std::unique_ptr<nn::Module> make_model(const TrainConfig::Model& m, const data::SampleLayout& layout,
                                       std::int64_t outputs, std::int64_t seed, const plugin::Registry& registry) {
  nn::ModelOptions options = m;
  options.input = layout.input_shape;
  options.input_dtype = layout.input_dtype;
  options.outputs = outputs;
  options.hidden = parse_extents(m.hidden_sizes);
  Generator generator(static_cast<std::uint64_t>(seed), parameter_stream);
  if (registry.models.contains(m.name)) return registry.models.make("model.name", m.name, options, generator);
  return nn::make_model(m.name, options, generator);
}

std::vector<optim::ParameterGroup> parameter_groups(const TrainConfig& config, const nn::Module& model) {
  auto parameters = trained_parameters(model);
  if (config.optim.decay_one_dimensional) return {{.parameters = std::move(parameters), .options = {}}};
  return optim::split_one_dimensional(parameters);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainConfig& c, std::vector<optim::ParameterGroup> groups,
                                                 std::shared_ptr<optim::TensorParts> parts) {
  optim::OptimOptions options = c.optim;
  if (has_hook(c.parallel.hook, "onebit")) options.freeze_step = c.parallel.hook_options.one_bit.freeze_step;
  options.parts = std::move(parts);
  return optim::make_optimizer(c.optim.name, options, std::move(groups));
}

TrainState make_train_state(const TrainConfig& config, std::map<std::string, std::string> deciding,
                            const data::SampleLayout& layout, const tasks::Task& task, std::int64_t generation,
                            const plugin::Registry& registry, Device device) {
  TrainState state;
  const MemoryScope scope(MemoryOwner::parameters);
  state.model = make_model(config.model, layout, task.outputs(), config.train.seed, registry);
  if (config.train.quantization_aware) make_quantization_aware(config, *state.model);
  freeze_parameters(config.model, *state.model);
  state.model->set_recompute(recompute_of(config.train));
  place_model(config, *state.model, layout, device);
  const auto& p = config.parallel;
  const bool is_divided =
      p.zero > 0 || shards_state(p.ranks) || p.micro_batches > 0 || p.strategy == "parameter_server";
  if (!is_divided) {
    state.optimizer = make_optimizer(config, parameter_groups(config, *state.model));
    if (config.train.ema > 0) state.ema.emplace(trained_parameters(*state.model), config.train.ema);
  }
  if (config.optim.lr_schedule.name == "plateau") state.plateau.emplace(plateau_options(config.optim));
  if (config.optim.skip_outliers > 0) state.outliers.emplace(config.optim.skip_outliers);
  if (compute_dtype(config.train) == DType::float16) state.scaler.emplace(config.train.scaler);
  state.run = {.seed = static_cast<std::uint64_t>(config.train.seed),
               .accumulate = config.train.accumulate,
               .generation = generation,
               .lr = config.optim.lr,
               .config = std::move(deciding)};
  return state;
}

TrainState make_initial_state(const TrainConfig& config, std::map<std::string, std::string> deciding,
                              const data::SampleLayout& layout, const tasks::Task& task, std::int64_t generation,
                              const plugin::Registry& registry, Device device) {
  auto state = make_train_state(config, std::move(deciding), layout, task, generation, registry, device);
  load_initial_weights(config.model, *state.model);
  return state;
}

}  // namespace ddprun::trainer
