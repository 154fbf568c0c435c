#include "worker/trainer/commands/quantization.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "worker/comm/init.h"
#include "worker/data/batch.h"
#include "worker/nn/quantization/quantize.h"
#include "worker/nn/state.h"
#include "worker/trainer/commands/command.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/state/datasets.h"
#include "worker/trainer/state/train_state.h"
#include "worker/trainer/state/trained_model.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t warm_up = 3;
constexpr std::size_t timed_passes = 31;

bool is_static(const TrainConfig& config) {
  const auto& mode = config.quantize.mode;
  return mode == "static" || (mode == "auto" && config.train.quantization_aware);
}

data::Batch first_samples(const data::Dataset& samples, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(end, samples.size()) - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return data::make_batch(samples, std::move(indices));
}

void run_on(nn::Module& model, const data::Dataset& samples, std::int64_t count, std::int64_t batch_size) {
  const NoGradScope no_grad;
  count = std::min(count, samples.size());
  for (std::int64_t begin = 0; begin < count; begin += batch_size)
    model(Variable(first_samples(samples, begin, std::min(begin + batch_size, count)).input()));
}

// Returns the median times of both models, which take turns, so that the machine's other work affects both.
std::array<Seconds, 2> batch_times(std::array<nn::Module*, 2> models, const Variable& input) {
  const NoGradScope no_grad;
  std::array<std::vector<Seconds>, 2> times;
  for (std::size_t pass = 0; pass < warm_up + timed_passes; ++pass) {
    for (std::size_t i = 0; i < models.size(); ++i) {
      Stopwatch watch;
      (*models[i])(input);
      if (pass >= warm_up) times[i].push_back(watch.lap());
    }
  }
  for (auto& each : times) std::ranges::sort(each);
  return {times[0][timed_passes / 2], times[1][timed_passes / 2]};
}

std::string row(const char* name, const std::string& before, const std::string& after) {
  return fmt::format("{:<24} {:>12} {:>12}", name, before, after);
}

std::string percent(double share) {
  return fmt::format("{:.2f} %", 100 * share);
}

}  // namespace

void quantize_model(nn::Module& model, const TrainConfig& config, const data::Dataset& samples) {
  const auto calibrate = [&] { run_on(model, samples, config.quantize.samples, config.eval.batch_size); };
  const int layers = is_static(config) ? nn::quantize_static(model, calibrate) : nn::quantize_dynamic(model);
  if (layers == 0)
    throw make_error(Errc::usage, "model.name = {}: it has no layer that can be quantized", config.model.name);
}

std::unique_ptr<nn::Module> load_quantized_model(const std::filesystem::path& file, const TrainConfig& config,
                                                 const data::SampleLayout& layout, const tasks::Task& task,
                                                 const plugin::Registry& registry) {
  auto model = make_model(config.model, layout, task.outputs(), config.train.seed, registry);
  const auto none = [] {};  // no calibration: the file has the ranges
  if (is_static(config))
    nn::quantize_static(*model, none);
  else
    nn::quantize_dynamic(*model);
  try {
    nn::load_state(*model, file);
  } catch (const Error& e) {
    throw make_error(e.code() == Errc::mismatch ? Errc::usage : e.code(), "quantize.mode = {}: {}",
                     config.quantize.mode, e.what());
  }
  model->train(false);
  return model;
}

std::vector<std::string> quantization_table(const ModelFigures& before, const ModelFigures& after,
                                            std::int64_t batch_size) {
  std::vector<std::string> lines{row("", "float32", "int8")};
  if (before.evaluation.accuracy && after.evaluation.accuracy)
    lines.push_back(row("accuracy", percent(*before.evaluation.accuracy), percent(*after.evaluation.accuracy)));
  lines.push_back(
      row("loss", fmt::format("{:.4f}", before.evaluation.loss), fmt::format("{:.4f}", after.evaluation.loss)));
  for (std::size_t i = 0; i < before.evaluation.others.size(); ++i) {
    const auto& [name, value] = before.evaluation.others[i];
    lines.push_back(
        row(name.c_str(), fmt::format("{:.4f}", value), fmt::format("{:.4f}", after.evaluation.others.at(i).value)));
  }
  lines.push_back(row("bytes", std::to_string(before.bytes), std::to_string(after.bytes)));
  const auto milliseconds = [](Seconds time) {
    return fmt::format("{:.3f} ms", std::chrono::duration<double, std::milli>(time).count());
  };
  lines.push_back(row(fmt::format("time of a batch of {}", batch_size).c_str(), milliseconds(before.batch),
                      milliseconds(after.batch)));
  return lines;
}

namespace {

// Writes the newest checkpoint's model in checkpoint.dir, quantized, to quantize.file, loads it from there, and prints
// both models' figures on the test set.
int quantize(const CommandContext& context) {
  const TrainConfig& config = context.config;
  const plugin::Registry& registry = context.registry;
  const auto& file = config.quantize.file;
  if (file.empty()) throw make_error(Errc::usage, "quantize needs quantize.file: where the model is written");
  const auto datasets = make_datasets(config, context.settings, registry);
  const auto& layout = datasets.train->layout();
  const auto task = make_evaluation_task(config, layout, registry);
  const auto load = [&] { return load_trained_model("quantize", config, layout, *task, registry); };
  const auto original = load(), changed = load();
  quantize_model(*changed, config, *datasets.train);
  nn::save_state(*changed, file);
  const auto quantized = load_quantized_model(file, config, layout, *task, registry);

  const auto world = init_process_group(init_options(config, {}));
  const auto evaluation = [&](nn::Module& model) {
    const auto result = evaluate(model, *task, *datasets.test, world->group(), {.batch_size = config.eval.batch_size});
    model.train(false);
    return result;
  };
  ModelFigures before{.evaluation = evaluation(*original)}, after{.evaluation = evaluation(*quantized)};
  before.bytes = open_trained_model("quantize", config).bytes();
  after.bytes = std::filesystem::file_size(file);
  const auto batch = first_samples(*datasets.test, 0, batch_sizes(config.train, 1).micro);
  const auto times = batch_times({original.get(), quantized.get()}, Variable(batch.input()));
  before.batch = times[0];
  after.batch = times[1];
  std::string text;
  for (const auto& line : quantization_table(before, after, batch.size())) text += line + "\n";
  write_standard_output(text);
  return exit_success;
}

}  // namespace

Command quantize_command() {
  return {.name = "quantize",
          .usage = "quantize train.cfg [--section.key=value ...]",
          .help =
              "quantize writes that model with weights of 8 bits, and prints what it loses and gains: "
              "[quantize].\n",
          .run = quantize};
}

}  // namespace ddprun::trainer
