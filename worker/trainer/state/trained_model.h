#pragma once

#include <memory>
#include <string_view>

#include "worker/data/dataset.h"
#include "worker/nn/module.h"
#include "worker/parallel/stored/model_source.h"
#include "worker/plugin/registry.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Opens a trained model's parameters, averaged if the run had train.ema: those of the newest checkpoint in
// checkpoint.dir, with checkpoint.resume = best of the best one, or without that folder model.weights. command: the one
// that needs them, for errors. Throws Errc::usage if there are none.
stored::ModelSource open_trained_model(std::string_view command, const TrainConfig& config);

// Loads the model with these parameters, in evaluation mode. Throws Errc::usage also for parameters of another model.
std::unique_ptr<nn::Module> load_trained_model(std::string_view command, const TrainConfig& config,
                                               const data::SampleLayout& layout, const tasks::Task& task,
                                               const plugin::Registry& registry);

}  // namespace ddprun::trainer
