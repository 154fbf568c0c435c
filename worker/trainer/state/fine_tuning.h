#pragma once

#include "worker/nn/module.h"
#include "worker/trainer/config/train_config.h"

// The parts that a run takes from an earlier one, and frozen parts. All throw Errc::usage naming key and value.
namespace ddprun::trainer {

// Copies the tensors of model.weights into the model; nothing without that key. The error names the file, and the
// tensor and both shapes, or all names that are missing or unexpected.
void load_initial_weights(const TrainConfig::Model& config, nn::Module& model);

// Makes the parameters that model.freeze means get no gradient. Throws for a pattern that means none, and if nothing is
// left to train.
void freeze_parameters(const TrainConfig::Model& config, nn::Module& model);

}  // namespace ddprun::trainer
