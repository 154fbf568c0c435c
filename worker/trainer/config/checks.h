#pragma once

#include <string>
#include <string_view>

#include "common/config/settings.h"
#include "worker/trainer/config/train_config.h"

// The parts of validate().
namespace ddprun::trainer {

// Throws Errc::usage: says where the key was given, its value, and what is wrong with it.
[[noreturn]] void reject(const Settings& settings, std::string_view key, const std::string& what);
// Does what parse_extents() does, naming the key.
void check_extents(const Settings& settings, std::string_view key, const std::string& text, bool may_be_empty);

// Checks models and data sets, their sizes, and which go together.
void check_model_and_data(const TrainConfig& config, const Settings& settings);
// Checks the optimizer and its learning rate.
void check_optimizer(const TrainConfig& config, const Settings& settings);
// Checks [dist] and [parallel].
void check_parallel(const TrainConfig& config, const Settings& settings);

// Returns whether the model is one of nn::model_names(), not a plugin's.
bool is_built_in(const TrainConfig::Model& model);

}  // namespace ddprun::trainer
