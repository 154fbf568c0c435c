#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ddprun/worker/checkpoint/run_state.h"
#include "ddprun/worker/data/dataset.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/optim/ema.h"
#include "ddprun/worker/optim/grad_scaler.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/optim/outlier_filter.h"
#include "ddprun/worker/tasks/task.h"
#include "ddprun/worker/trainer/config/train_config.h"
#include "ddprun/worker/trainer/state/plateau.h"

namespace ddprun::trainer {

// What a run has learnt and where it stands: all that a later step depends on, apart from the settings. It knows no
// process group, so it outlives the groups in which it is trained. Gradients are no part of it: every step begins by
// clearing them. Between two steps all ranks' states are equal, apart from what Session::own_state() gives, and from
// buffers that rank 0's replace before they are used.
struct TrainState {
  std::unique_ptr<nn::Module> model;
  // Of the model's parameters; where they are divided (parallel.zero, tensor, micro_batches, servers) of this rank's,
  // made by the session.
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::NamedParameters parts;             // where they are divided: those; others may have no memory then
  std::optional<optim::GradScaler> scaler;  // with train.precision = fp16
  // With train.ema, of the parameters that the optimizer has.
  std::optional<optim::ExponentialMovingAverage> ema;
  std::optional<Plateau> plateau;                // with optim.schedule = plateau
  std::optional<optim::OutlierFilter> outliers;  // with optim.skip_outliers
  checkpoint::RunState run;                      // step, position in the data, seed, settings

  // Goes on where a checkpoint's run stood; its tensors are copied by resume(). REQUIRES: optimizer
  void continue_from(const checkpoint::RunState& saved);
  // Of the whole test set, the same at all ranks. Returns whether it is the lowest so far; one that is not finite is
  // not.
  bool note_evaluation(double loss);
  // Takes what plateau and outliers know into run, for a checkpoint.
  void note_rules();
};

// train.recompute
nn::Recompute recompute_of(const TrainConfig::Train& train);

// A network with parameters drawn from the seed, of the plugin's models or the built-in ones.
std::unique_ptr<nn::Module> make_model(const TrainConfig::Model& options, const data::SampleLayout& layout,
                                       std::int64_t outputs, std::int64_t seed, const plugin::Registry& registry = {});
// What train.task names, of the plugin's or the built-in tasks. Throws as tasks::make_task().
std::unique_ptr<tasks::Task> make_task(const TrainConfig& config, const data::SampleLayout& layout,
                                       const plugin::Registry& registry = {});

// Those that are not frozen.
optim::NamedParameters trained_parameters(const nn::Module& model);

// What the settings make of the optimizer's parameters: its groups, then the optimizer.
std::vector<optim::ParameterGroup> parameter_groups(const TrainConfig& config, const nn::Module& model);
std::unique_ptr<optim::Optimizer> make_optimizer(const TrainConfig& config, std::vector<optim::ParameterGroup> groups);

// The same for a model that is evaluated alone: a distillation is a classification then, without its teacher.
std::unique_ptr<tasks::Task> make_evaluation_task(const TrainConfig& config, const data::SampleLayout& layout,
                                                  const plugin::Registry& registry = {});

// As it is before the first step: parameters drawn from the run's seed. deciding: settings_that_decide(); generation:
// of the job, for the record. device: where the model and the optimizer's state are, where parallel.devices names none.
TrainState make_train_state(const TrainConfig& config, std::map<std::string, std::string> deciding,
                            const data::SampleLayout& layout, const tasks::Task& task, std::int64_t generation,
                            const plugin::Registry& registry = {}, Device device = {});

}  // namespace ddprun::trainer
