#pragma once

#include <memory>
#include <string>

#include "ddprun/common/config/settings.h"
#include "ddprun/worker/data/dataset.h"
#include "ddprun/worker/trainer/train_config.h"

namespace ddprun::trainer {

struct Datasets {
  std::unique_ptr<data::Dataset> train;
  std::unique_ptr<data::Dataset> test;
  std::string note;  // one line for people when what was asked for is replaced; else empty
};

// What data.name and its options ask for. settings tells whether data.dir is the default, which may be missing (then
// generated digits take its place), or the user's, which may not: Errc::usage naming where it was given.
Datasets make_datasets(const TrainConfig& config, const Settings& settings);

}  // namespace ddprun::trainer
