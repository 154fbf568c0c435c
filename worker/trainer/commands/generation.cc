#include "ddprun/worker/trainer/commands/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/standard_output.h"
#include "ddprun/worker/data/tokens.h"
#include "ddprun/worker/tasks/tasks.h"
#include "ddprun/worker/trainer/commands/command.h"
#include "ddprun/worker/trainer/commands/quantisation.h"
#include "ddprun/worker/trainer/state/byte_pairs.h"
#include "ddprun/worker/trainer/state/trained_model.h"

namespace ddprun::trainer {
namespace {

// The tokens from the most to the least likely, no more than top_k of them.
std::vector<std::int64_t> most_likely(std::span<const float> logits, std::int64_t top_k) {
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto more_likely = [&](std::int64_t a, std::int64_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::sort(order.begin(), order.end(), more_likely);
  if (top_k > 0 && top_k < std::ssize(order)) order.resize(static_cast<std::size_t>(top_k));
  return order;
}

std::vector<std::int64_t> tokens_of(const std::string& text, const std::optional<tokenizer::BytePairs>& pairs) {
  if (pairs) {
    const auto tokens = pairs->encode(text);
    return {tokens.begin(), tokens.end()};
  }
  std::vector<std::int64_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

}  // namespace

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, Generator& generator) {
  const auto order = most_likely(logits, options.temperature == 0 ? 1 : options.top_k);
  if (order.size() == 1) return order[0];
  const auto logit = [&](std::int64_t token) { return static_cast<double>(logits[static_cast<std::size_t>(token)]); };
  std::vector<double> weights;
  for (const std::int64_t token : order)
    weights.push_back(std::exp((logit(token) - logit(order[0])) / options.temperature));
  double left = generator.uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();  // rounding
}

void generate_tokens(nn::Module& model, std::vector<std::int64_t> prompt, std::int64_t context, std::int64_t count,
                     const SamplingOptions& options, Generator& generator,
                     const std::function<void(std::int64_t)>& token) {
  const NoGradScope no_grad;
  model.train(false);
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::ssize(prompt) > context) prompt.erase(prompt.begin(), prompt.end() - context);
    const auto length = std::ssize(prompt);
    const Tensor logits = model(Variable(Tensor::from(prompt, {1, length}))).value();
    const Tensor last = logits.reshape({length, -1}).select(0, length - 1).to(DType::float32);
    const std::span<const float> scores(last.data<float>(), static_cast<std::size_t>(last.numel()));
    prompt.push_back(sample_token(scores, options, generator));
    token(prompt.back());
  }
}

namespace {

// Continues generate.prompt with the model of the newest checkpoint in checkpoint.dir, and writes the text to standard
// output as it is made.
int generate(const CommandContext& context) {
  const TrainConfig& config = context.config;
  const plugin::Registry& registry = context.registry;
  if (config.data.name != "text")
    throw make_error(Errc::usage, "generate continues text: it needs data.name = text, not {}", config.data.name);
  const auto pairs = byte_pairs_of(config.data);
  const auto layout = data::token_layout(config.data.context, pairs ? pairs->size() : 256);
  const auto task = tasks::make_task("language_modelling", {.layout = layout});
  const auto& quantised = config.generate.quantized;
  const auto model = quantised.empty() ? load_trained_model("generate", config, layout, *task, registry)
                                       : load_quantised_model(quantised, config, layout, *task, registry);
  const auto& options = config.generate;
  Generator generator(static_cast<std::uint64_t>(options.seed));
  // Without a prompt the text begins as after a line.
  const std::string prompt = options.prompt.empty() ? "\n" : options.prompt;
  write_standard_output(options.prompt);
  const auto text_of = [&](std::int64_t token) {
    return pairs ? pairs->decode(static_cast<tokenizer::Token>(token)) : std::string(1, static_cast<char>(token));
  };
  generate_tokens(*model, tokens_of(prompt, pairs), config.data.context, options.tokens,
                  {.temperature = options.temperature, .top_k = options.top_k}, generator,
                  [&](std::int64_t token) { write_standard_output(text_of(token)); });
  write_standard_output("\n");
  return exit_success;
}

}  // namespace

Command generate_command() {
  return {.name = "generate",
          .usage = "generate train.cfg [--section.key=value ...]",
          .help =
              "generate continues a text with the model of the newest checkpoint; its keys are those of "
              "[generate].\n",
          .run = generate};
}

}  // namespace ddprun::trainer
