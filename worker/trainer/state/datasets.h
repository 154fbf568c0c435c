#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/config/settings.h"
#include "worker/data/augmentation.h"
#include "worker/data/dataset.h"
#include "worker/data/mixup.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

struct Datasets {
  std::unique_ptr<data::Dataset> train;
  std::unique_ptr<data::Dataset> test;
  std::optional<data::Augmentation> augmentation = {};  // applied to training samples
  std::optional<data::Mixup> mixup = {};                // applied to training samples as well
  std::string note = {};  // one line to print if another data set is used than the configured one; otherwise empty
};

// Makes the data sets that data.name and its options select, the plugin's or the built-in ones. If data.dir is not set
// and the default folder holds no files of MNIST or CIFAR-10, generated images are used. If the user has set it, that
// is Errc::usage naming where.
Datasets make_datasets(const TrainConfig& config, const Settings& settings, const plugin::Registry& registry = {});

// Returns data.dir, or the default folder of data.name.
std::filesystem::path data_folder(const TrainConfig& config);

// Loads the samples of a file, in the form of those of data.name: numbers from a .csv, otherwise images from an IDX
// file (mnist, digits), a file of CIFAR-10's records (cifar10), or a PNG or JPEG file (image_folder), normalized as
// data.normalize says. Throws Errc::usage for another data set, and what the readers throw.
std::unique_ptr<data::Dataset> load_samples(const std::filesystem::path& path, const TrainConfig& config,
                                            const Settings& settings, const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
