#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/run_state.h"
#include "worker/data/dataset.h"
#include "worker/nn/module.h"
#include "worker/optim/ema.h"
#include "worker/optim/grad_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/outlier_filter.h"
#include "worker/reducer/shard_gradients.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/state/plateau.h"
#include "worker/trainer/state/update_listener.h"

namespace ddprun::trainer {

// The state and the position of a run: all that a later step depends on, apart from the settings. It knows no process
// group, so it outlives the groups in which it is trained. Gradients are no part of it, but for those of shards: every
// step begins by clearing them. Between two steps all ranks' states are equal, apart from what Session::own_state()
// returns, and from buffers that rank 0's replace before they are used.
struct TrainState {
  std::unique_ptr<nn::Module> model;
  // That of the model's parameters; if they are sharded (parallel.zero, tensor, micro_batches, servers) that of this
  // rank's, made by the session.
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::NamedParameters parts;             // those of this rank if they are sharded; others may have no memory then
  std::optional<optim::GradScaler> scaler;  // set with train.precision = fp16
  // Set with train.ema, for the parameters that the optimizer has.
  std::optional<optim::ExponentialMovingAverage> ema;
  std::optional<Plateau> plateau;                // set with optim.schedule = plateau
  std::optional<optim::OutlierFilter> outliers;  // set with optim.skip_outliers
  checkpoint::RunState run;                      // step, position in the data, seed, settings
  ShardGradients shards;  // train.shards: what this rank has of the step in progress; no part of a checkpoint
  // The times by which the layers of a pipeline are divided among stages; empty until a session has measured them. A
  // later group needs the same ones, since ranks hold parts of the state by stages.
  std::vector<double> layer_seconds;
  // True if the ranks of the next session's group have the same parameters already, as after a recovery: the session
  // does not copy rank 0's.
  bool ranks_agree = false;
  // To be called before parameters, optimizer state or averages change: waits for those who read them on another
  // thread, as a checkpoint does that is saved in the background. They read no buffers.
  std::function<void()> await_readers = [] {};
  std::vector<UpdateListener*> listeners;  // told of updates

  // Goes on at the position of a checkpoint's run; its tensors are copied by resume(). REQUIRES: optimizer
  void continue_from(const checkpoint::RunState& saved);
  // loss: that of the whole test set, the same at all ranks. Returns whether it is the lowest so far; false if it is
  // not finite.
  bool record_evaluation(double loss);
  // Copies the state of plateau and outliers to run, for a checkpoint.
  void record_rules();
};

// Returns train.recompute.
nn::Recompute recompute_of(const TrainConfig::Train& train);

// Makes a network with parameters drawn from the seed, of the plugin's models or the built-in ones.
std::unique_ptr<nn::Module> make_model(const TrainConfig::Model& options, const data::SampleLayout& layout,
                                       std::int64_t outputs, std::int64_t seed, const plugin::Registry& registry = {});
// Makes the task that train.task names, the plugin's or a built-in one. Throws what tasks::make_task() throws.
std::unique_ptr<tasks::Task> make_task(const TrainConfig& config, const data::SampleLayout& layout,
                                       const plugin::Registry& registry = {});

// Returns the parameters that are not frozen.
optim::NamedParameters trained_parameters(const nn::Module& model);

// Make the groups of the optimizer's parameters, and the optimizer, as the settings say.
std::vector<optim::ParameterGroup> parameter_groups(const TrainConfig& config, const nn::Module& model);
std::unique_ptr<optim::Optimizer> make_optimizer(const TrainConfig& config, std::vector<optim::ParameterGroup> groups,
                                                 std::shared_ptr<optim::TensorParts> parts = nullptr);

// Makes the task for a model that is only evaluated: a distillation is a classification then, without its teacher.
std::unique_ptr<tasks::Task> make_evaluation_task(const TrainConfig& config, const data::SampleLayout& layout,
                                                  const plugin::Registry& registry = {});

// Makes the state before the first step: parameters drawn from the run's seed. deciding: settings_that_decide();
// generation: the job's, for the record. device: that of model and optimizer if parallel.devices names none.
TrainState make_train_state(const TrainConfig& config, std::map<std::string, std::string> deciding,
                            const data::SampleLayout& layout, const tasks::Task& task, std::int64_t generation,
                            const plugin::Registry& registry = {}, Device device = {});
// Makes the same, but parameters named by model.weights have the values of that file. Throws Errc::usage.
TrainState make_initial_state(const TrainConfig& config, std::map<std::string, std::string> deciding,
                              const data::SampleLayout& layout, const tasks::Task& task, std::int64_t generation,
                              const plugin::Registry& registry, Device device);

}  // namespace ddprun::trainer
