#include "worker/trainer/state/fine_tuning.h"

#include <algorithm>
#include <sstream>

#include "common/error.h"
#include "worker/nn/name_pattern.h"
#include "worker/nn/state.h"

namespace ddprun::trainer {
namespace {

// Returns words that are separated by blanks.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

bool means_something(const std::string& pattern, const nn::Module& model) {
  const auto is_meant = [&](const auto& each) { return nn::matches(pattern, each.first); };
  return std::ranges::any_of(model.named_parameters(), is_meant) ||
         std::ranges::any_of(model.named_buffers(), is_meant);
}

std::vector<std::string> patterns_of(const char* key, const std::string& text, const nn::Module& model) {
  auto patterns = words_of(text);
  for (const auto& pattern : patterns)
    if (!means_something(pattern, model))
      throw make_error(Errc::usage, "{} = {}: the model has no parameter {}", key, text, pattern);
  return patterns;
}

}  // namespace

void load_initial_weights(const TrainConfig::Model& config, nn::Module& model) {
  if (config.weights.empty()) return;
  const nn::LoadOptions options{
      .prefix = config.weights_prefix,
      .ignored_suffixes = {".attn.bias", ".attn.masked_bias"},  // the causal masks in older files of GPT-2
      .excluded = patterns_of("model.weights_except", config.weights_except, model)};
  try {
    nn::load_state(model, config.weights, options);
  } catch (const Error& e) {
    throw make_error(Errc::usage, "model.weights = {}: {}", config.weights.string(), e.what());
  }
}

void freeze_parameters(const TrainConfig::Model& config, nn::Module& model) {
  const auto patterns = patterns_of("model.freeze", config.freeze, model);
  if (patterns.empty()) return;
  auto parameters = model.named_parameters();
  for (auto& [name, parameter] : parameters)
    if (nn::matches_any(patterns, name)) parameter.set_requires_grad(false);
  if (std::ranges::none_of(parameters, [](const auto& each) { return each.second.requires_grad(); }))
    throw make_error(Errc::usage, "model.freeze = {}: nothing is left to train", config.freeze);
}

}  // namespace ddprun::trainer
