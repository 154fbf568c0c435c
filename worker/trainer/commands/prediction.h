#pragma once

#include <functional>
#include <string_view>

#include "worker/data/dataset.h"
#include "worker/nn/module.h"
#include "worker/trainer/session/evaluation.h"

namespace ddprun::trainer {

// Writes the model's results for each sample as lines of CSV with a header: index, class and its probability (softmax)
// if the samples have classes, otherwise index and the outputs. The model is in evaluation mode. Calls write() with
// text a batch at a time.
void predict_samples(nn::Module& model, const data::Dataset& samples, EvaluationOptions options,
                     const std::function<void(std::string_view)>& write);

}  // namespace ddprun::trainer
