#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/nn/module.h"
#include "worker/plugin/registry.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/evaluation.h"
#include "worker/trainer/session/stopwatch.h"

namespace ddprun::trainer {

// Quantizes a model in place as quantize.mode says. The first quantize.samples of samples calibrate a static model.
// Throws Errc::usage for a model without a layer that can be quantized.
void quantize_model(nn::Module& model, const TrainConfig& config, const data::Dataset& samples);

// Loads the quantized model in a file of "ddprun-worker quantize" with the same settings, in evaluation mode.
// Throws Errc::usage for a file of another model or mode, Errc::io for one that cannot be read.
std::unique_ptr<nn::Module> load_quantized_model(const std::filesystem::path& file, const TrainConfig& config,
                                                 const data::SampleLayout& layout, const tasks::Task& task,
                                                 const plugin::Registry& registry);

// One column of the table.
struct ModelFigures {
  Evaluation evaluation;
  std::uintmax_t bytes = 0;  // that of the file
  Seconds batch{0};          // that of the forward pass of a batch
};
// Returns the lines of a table.
std::vector<std::string> quantization_table(const ModelFigures& before, const ModelFigures& after,
                                            std::int64_t batch_size);

}  // namespace ddprun::trainer
