#include "worker/trainer/commands/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "worker/data/loader.h"
#include "worker/trainer/commands/command.h"
#include "worker/trainer/commands/quantization.h"
#include "worker/trainer/state/datasets.h"
#include "worker/trainer/state/train_state.h"
#include "worker/trainer/state/trained_model.h"

namespace ddprun::trainer {
namespace {

// Returns the first class with the highest score, and its probability by softmax.
std::string class_and_probability(std::span<const float> scores) {
  const auto best = std::ranges::max_element(scores);
  double sum = 0;
  for (const float score : scores) sum += std::exp(static_cast<double>(score) - *best);
  return fmt::format("{},{:.6f}", best - scores.begin(), 1 / sum);
}

std::string header(const data::SampleLayout& layout, std::int64_t outputs) {
  if (layout.classes > 0) return "index,class,probability\n";
  std::string text = "index";
  for (std::int64_t i = 0; i < outputs; ++i) text += fmt::format(",output{}", i);
  return text + "\n";
}

std::unique_ptr<data::Dataset> samples_of(const TrainConfig& config, const Settings& settings,
                                          const plugin::Registry& registry) {
  if (config.predict.input.empty()) return make_datasets(config, settings, registry).test;
  return load_samples(config.predict.input, config, settings, registry);
}

}  // namespace

void predict_samples(nn::Module& model, const data::Dataset& samples, EvaluationOptions options,
                     const std::function<void(std::string_view)>& write) {
  const NoGradScope no_grad;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(samples.size()));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  data::Loader loader(samples, std::move(indices), {.batch_size = options.batch_size, .workers = options.workers});
  std::string text;
  while (const auto batch = loader.next()) {
    const Tensor outputs = model(Variable(batch->input())).value().to(DType::float32).contiguous();
    const auto count = static_cast<std::size_t>(outputs.numel() / batch->size());
    if (batch->samples[0] == 0) text = header(samples.layout(), static_cast<std::int64_t>(count));
    for (std::size_t row = 0; row < batch->samples.size(); ++row) {
      const std::span<const float> values(outputs.data<float>() + row * count, count);
      text += fmt::format(
          "{},{}\n", batch->samples[row],
          samples.layout().classes > 0 ? class_and_probability(values) : fmt::format("{}", fmt::join(values, ",")));
    }
    write(text);
    text.clear();
  }
}

namespace {

// Writes predictions of the model of the newest checkpoint in checkpoint.dir, for the samples of predict.input, or the
// test set, to predict.output, which appears when it is complete, or to standard output.
int predict(const CommandContext& context) {
  const TrainConfig& config = context.config;
  const plugin::Registry& registry = context.registry;
  if (config.data.name == "text" || config.data.name == "tokens")
    throw make_error(Errc::usage, "predict needs samples with a class or numbers to predict, not data.name = {}",
                     config.data.name);
  const auto samples = samples_of(config, context.settings, registry);
  const auto task = make_evaluation_task(config, samples->layout(), registry);
  const auto& quantized = config.predict.quantized;
  const auto model = quantized.empty() ? load_trained_model("predict", config, samples->layout(), *task, registry)
                                       : load_quantized_model(quantized, config, samples->layout(), *task, registry);
  std::string file;
  const auto write = [&](std::string_view text) {
    if (config.predict.output.empty())
      write_standard_output(std::string(text));
    else
      file += text;
  };
  predict_samples(*model, *samples,
                  {.batch_size = config.eval.batch_size, .workers = std::min(config.data.loader.workers, 1)}, write);
  if (!config.predict.output.empty()) write_file_atomically(config.predict.output, file);
  return exit_success;
}

}  // namespace

Command predict_command() {
  return {.name = "predict",
          .usage = "predict train.cfg [--section.key=value ...]",
          .help =
              "predict writes what that model predicts for the samples of a file, or the test set, as CSV: "
              "[predict].\n",
          .run = predict};
}

}  // namespace ddprun::trainer
