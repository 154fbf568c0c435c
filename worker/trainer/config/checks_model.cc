#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker/data/digits.h"
#include "worker/data/patterns.h"
#include "worker/nn/models.h"
#include "worker/trainer/config/checks.h"
#include "worker/trainer/config/keys.h"

namespace ddprun::trainer {
namespace {

// Returns a product of settings, which may each be within bounds. It is the largest number instead of overflowing.
std::int64_t product(const std::vector<std::int64_t>& factors) {
  std::int64_t result = 1;
  for (const auto factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return std::numeric_limits<std::int64_t>::max();
  return result;
}

void check_size(const Settings& settings, std::string_view key, const char* what,
                const std::vector<std::int64_t>& sizes, std::int64_t limit) {
  if (product(sizes) > limit)
    reject(settings, key,
           fmt::format("{} of {} numbers is larger than the limit of {}", what, fmt::join(sizes, " x "), limit));
}

bool is_built_in(const TrainConfig::Data& data) {
  return std::ranges::count(built_in_data(), data.name) > 0;
}

// Tokens are numbers of entries, not measurements: only an embedding can read them. Plugins' models are not checked.
void check_model_of_tokens(const TrainConfig& c, const Settings& settings) {
  if (!is_built_in(c.model) || !is_built_in(c.data)) return;
  const bool tokens = c.data.name == "text" || c.data.name == "tokens";
  if (tokens != (c.model.name == "gpt"))
    reject(settings, "model.name",
           tokens ? "tokens (data.name = text or tokens) need a language model: gpt"
                  : "gpt is trained on tokens: data.name = text or tokens");
}

void check_random_data(const TrainConfig& c, const Settings& settings) {
  const auto shape = parse_extents(c.data.shape);
  const auto sample = product(shape);
  check_size(settings, "data.shape", "a sample", shape, max_tensor_elements);
  check_size(settings, "data.outputs", "a linear rule", {sample, c.data.outputs}, max_tensor_elements);
  check_size(settings, "train.batch_size", "a batch", {std::min(c.train.batch_size, c.data.samples), sample},
             max_batch_elements);
  check_size(settings, "eval.batch_size", "a batch", {std::min(c.eval.batch_size, c.data.test_samples), sample},
             max_batch_elements);
}

// True for auto, too: data without labels are refused when they are known.
bool learns_classes(const std::string& task) {
  return task == "auto" || task == "classification" || task == "distillation";
}

// Checks their size, as generated images are kept in memory.
void check_generated(const TrainConfig& c, const Settings& settings, const char* what, std::int64_t bytes) {
  if (c.data.samples + c.data.test_samples > max_dataset_bytes / bytes)
    reject(settings, c.data.samples >= c.data.test_samples ? "data.samples" : "data.test_samples",
           fmt::format("generated {} are kept in memory, {} bytes each: at most {} of them", what, bytes,
                       max_dataset_bytes / bytes));
}

// Checks the layers of mlp between the sample and the outputs.
void check_hidden(const TrainConfig& c, const Settings& settings) {
  auto widths = parse_extents(c.model.hidden_sizes);
  if (c.data.name == "random") widths.insert(widths.begin(), product(parse_extents(c.data.shape)));
  for (std::size_t i = 1; i < widths.size(); ++i)
    check_size(settings, "model.hidden", "a layer", {widths[i - 1], widths[i]}, max_tensor_elements);
}

// Checks the smallest image that the model's layers can take, if there is a limit.
void check_image(const Settings& settings, std::string_view key, const std::string& model,
                 const std::vector<std::int64_t>& shape) {
  const std::int64_t least = nn::smallest_image(model);
  if (least == 0 || (shape.size() == 3 && shape[1] >= least && shape[2] >= least)) return;
  reject(settings, key,
         fmt::format("model {} takes channels, height and width, at least 1x{}x{}", model, least, least));
}

void check_transformer(const TrainConfig& c, const Settings& settings) {
  const TrainConfig::Model& m = c.model;
  const nn::GptOptions sizes = nn::with_preset({.preset = m.gpt.preset,
                                                .layers = m.gpt.layers,
                                                .heads = m.gpt.heads,
                                                .width = m.gpt.width,
                                                .context = m.gpt.context,
                                                .vocabulary = m.gpt.vocabulary});
  if (sizes.width % sizes.heads != 0)
    reject(settings, "model.heads", fmt::format("{} features do not divide by {} heads", sizes.width, sizes.heads));
  check_size(settings, "model.width", "a layer", {4, sizes.width, sizes.width}, max_tensor_elements);
  check_size(settings, "model.feedforward", "a layer", {m.encoder.feedforward, sizes.width}, max_tensor_elements);
  if (m.name != "gpt") return;
  if (c.data.context > sizes.context)
    reject(settings, "data.context",
           fmt::format("gpt sees at most {} tokens (model.context, model.preset)", sizes.context));
  check_size(settings, "model.vocabulary", "an embedding", {sizes.vocabulary, sizes.width}, max_tensor_elements);
  check_size(settings, "model.context", "an embedding", {sizes.context, sizes.width}, max_tensor_elements);
}

void check_experts(const TrainConfig& c, const Settings& settings) {
  const TrainConfig::Model& m = c.model;
  if (m.experts.experts == 0 || m.name != "gpt") return;
  const nn::GptOptions sizes = nn::with_preset({.preset = m.gpt.preset, .layers = m.gpt.layers, .width = m.gpt.width});
  check_size(settings, "model.experts", "a layer of the experts", {m.experts.experts, 4, sizes.width, sizes.width},
             max_tensor_elements);
  if (m.experts.per_token > m.experts.experts)
    reject(settings, "model.experts_per_token", fmt::format("there are {} experts", m.experts.experts));
  if (m.experts.every > sizes.layers)
    reject(settings, "model.expert_every", fmt::format("the model has {} blocks", sizes.layers));
}

void check_distillation(const TrainConfig& c, const Settings& settings) {
  const auto& d = c.distill;
  check_extents(settings, "distill.hidden", d.hidden, true);
  if (c.train.task != "distillation") return;
  const auto names = nn::model_names();
  if (std::find(names.begin(), names.end(), d.teacher) == names.end())
    reject(settings, "distill.teacher", fmt::format("expected one of {}", fmt::join(names, ", ")));
  if (d.weights.empty()) reject(settings, "distill.weights", "expected the file with the teacher's parameters");
}

}  // namespace

bool is_built_in(const TrainConfig::Model& model) {
  return std::ranges::count(nn::model_names(), model.name) > 0;
}

void check_model_and_data(const TrainConfig& c, const Settings& settings) {
  check_extents(settings, "model.hidden", c.model.hidden_sizes, true);
  check_extents(settings, "data.shape", c.data.shape, false);
  if (c.data.name == "random" && c.data.labels && c.data.outputs < 2)
    reject(settings, "data.outputs", "labels need at least 2 classes");
  if (c.data.name == "random") check_random_data(c, settings);
  if (c.data.name == "digits") check_generated(c, settings, "digits", sizeof(data::Digit));
  if (c.data.name == "cifar10") check_generated(c, settings, "images", sizeof(data::Pattern));
  check_model_of_tokens(c, settings);
  if (c.parallel.strategy == "data_parallel" && !is_built_in(c.model))
    reject(settings, "parallel.strategy", "replicas are made only of the built-in models");
  if (c.data.mixup > 0 && !learns_classes(c.train.task))
    reject(settings, "data.mixup", "only classification and distillation learn shares of classes");
  if (c.model.name == "mlp") check_hidden(c, settings);
  if (c.model.name == "gpt" || c.model.name == "transformer") check_transformer(c, settings);
  check_experts(c, settings);
  if (c.data.name == "random" && is_built_in(c.model))
    check_image(settings, "data.shape", c.model.name, parse_extents(c.data.shape));
  if (c.data.name == "image_folder" && is_built_in(c.model))
    check_image(settings, "data.image_size", c.model.name, {3, c.data.image_size, c.data.image_size});
  check_distillation(c, settings);
}

}  // namespace ddprun::trainer
