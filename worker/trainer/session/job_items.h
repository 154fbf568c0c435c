#pragma once

#include <string_view>

#include "common/config/settings.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/shared_items.h"
#include "worker/trainer/state/datasets.h"

namespace ddprun::trainer {

// Returns what all ranks of a job have to have in common: the program's version, the plugin, the settings (all except
// those of Scope::process; for a path whether it is given), initial weights, tokenizer and data sets. Reads files of
// the settings, and the files of the data sets. command: train or profile. Throws what reading them throws.
SharedItems items_of_job(std::string_view command, const TrainConfig& config, const Settings& settings,
                         const Datasets& datasets, const plugin::Registry& registry = {});

// Returns only the part of the settings.
SharedItems items_of_settings(const Settings& settings);

}  // namespace ddprun::trainer
