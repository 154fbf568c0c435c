#pragma once

#include <functional>
#include <string_view>

#include "ddprun/worker/data/dataset.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/trainer/session/evaluation.h"

namespace ddprun::trainer {

// What the model gives for each sample, as lines of CSV with a header: index, class and its probability (softmax) where
// the samples have classes, else index and the outputs. The model is in evaluation mode. Calls write() with text a
// batch at a time.
void predict_samples(nn::Module& model, const data::Dataset& samples, EvaluationOptions options,
                     const std::function<void(std::string_view)>& write);

}  // namespace ddprun::trainer
