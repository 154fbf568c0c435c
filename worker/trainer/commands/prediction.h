#pragma once

#include <functional>
#include <string_view>

#include "ddprun/common/config/settings.h"
#include "ddprun/worker/data/dataset.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/plugin/registry.h"
#include "ddprun/worker/trainer/config/train_config.h"
#include "ddprun/worker/trainer/session/evaluation.h"

namespace ddprun::trainer {

// What the model gives for each sample, as lines of CSV with a header: index, class and its probability (softmax) where
// the samples have classes, else index and the outputs. The model is in evaluation mode. Calls write() with text a
// batch at a time.
void predict_samples(nn::Module& model, const data::Dataset& samples, EvaluationOptions options,
                     const std::function<void(std::string_view)>& write);

// "ddprun-worker predict": predictions of the model of the newest checkpoint in checkpoint.dir, for the samples of
// predict.input, or the test set, into predict.output, which appears when it is complete, or standard output. Throws
// Errc::usage for a configuration without a checkpoint, and what reading the samples throws.
void predict(const TrainConfig& config, const Settings& settings, const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
