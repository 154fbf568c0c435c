#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "ddprun/worker/data/dataset.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/plugin/registry.h"
#include "ddprun/worker/tasks/task.h"
#include "ddprun/worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Its parameters, averaged if the run had train.ema, in the newest checkpoint in checkpoint.dir, or with
// checkpoint.resume = best in the best one. Throws Errc::usage without one.
std::filesystem::path newest_model_file(std::string_view command, const TrainConfig& config);

// The model of the newest checkpoint in checkpoint.dir, in evaluation mode. command: what needs it, for errors. Throws
// Errc::usage without a checkpoint, and for one of another model.
std::unique_ptr<nn::Module> load_trained_model(std::string_view command, const TrainConfig& config,
                                               const data::SampleLayout& layout, const tasks::Task& task,
                                               const plugin::Registry& registry);

}  // namespace ddprun::trainer
