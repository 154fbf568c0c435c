#include "worker/trainer/commands/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "worker/data/tokens.h"
#include "worker/nn/decoding/incremental_decoder.h"
#include "worker/tasks/tasks.h"
#include "worker/trainer/commands/command.h"
#include "worker/trainer/commands/quantization.h"
#include "worker/trainer/state/byte_pairs.h"
#include "worker/trainer/state/trained_model.h"

namespace ddprun::trainer {
namespace {

// Returns the tokens to draw from: with top_k so many of the most likely, from the most to the least likely, otherwise
// all in their order.
std::vector<std::int64_t> candidates(std::span<const float> logits, std::int64_t top_k) {
  std::vector<std::int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), std::int64_t{0});
  if (top_k == 0 || top_k >= std::ssize(tokens)) return tokens;
  const auto more_likely = [&](std::int64_t a, std::int64_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(tokens.begin(), tokens.begin() + top_k, tokens.end(), more_likely);
  tokens.resize(static_cast<std::size_t>(top_k));
  return tokens;
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
  const auto tokens = candidates(logits, options.temperature == 0 ? 1 : options.top_k);
  if (tokens.size() == 1) return tokens[0];
  const double highest = *std::ranges::max_element(logits);
  std::vector<double> weights;
  for (const std::int64_t token : tokens)
    weights.push_back(std::exp((logits[static_cast<std::size_t>(token)] - highest) / options.temperature));
  double left = generator.uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    left -= weights[i];
    if (left < 0) return tokens[i];
  }
  return tokens.back();  // rounding
}

namespace {

// The scores of the token that follows a sequence, which grows by one token from call to call.
class NextScores {
 public:
  NextScores(nn::Module& model, const GenerationOptions& options) : model_(model) {
    if (options.incremental) decoder_.emplace(model, options.context);
  }

  // moved: true if tokens at the front were removed since the call before, so that all positions are others.
  Tensor after(const std::vector<std::int64_t>& tokens, bool moved) {
    if (moved) decoder_.reset();
    const std::int64_t known = decoder_ ? decoder_->length() : 0, time = std::ssize(tokens) - known;
    const Tensor input = Tensor::from(std::vector(tokens.begin() + known, tokens.end()), {1, time});
    const Tensor scores = (decoder_ ? (*decoder_)(input) : model_(Variable(input))).value();
    return scores.reshape({time, -1}).select(0, time - 1).to(DType::float32);
  }

 private:
  nn::Module& model_;
  std::optional<nn::IncrementalDecoder> decoder_;
};

}  // namespace

void generate_tokens(nn::Module& model, std::vector<std::int64_t> prompt, const GenerationOptions& options,
                     Generator& generator, const std::function<void(std::int64_t)>& token) {
  const NoGradScope no_grad;
  model.train(false);
  NextScores next(model, options);
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const bool is_full = std::ssize(prompt) > options.context;
    if (is_full) prompt.erase(prompt.begin(), prompt.end() - options.context);
    const Tensor scores = next.after(prompt, is_full);
    const std::span<const float> logits(scores.data<float>(), static_cast<std::size_t>(scores.numel()));
    prompt.push_back(sample_token(logits, options.sampling, generator));
    token(prompt.back());
  }
}

namespace {

void check_data(const TrainConfig::Data& data) {
  if (data.name != "text" && data.name != "tokens")
    throw make_error(Errc::usage, "generate continues text: it needs data.name = text or tokens, not {}", data.name);
  if (data.name == "tokens" && data.tokenizer.empty())
    throw Error(Errc::usage, "data.name = tokens: generate needs data.tokenizer, the encoding of the tokens");
}

std::int64_t vocabulary_of(const TrainConfig::Data& data, const std::optional<tokenizer::BytePairs>& pairs) {
  if (data.name == "tokens") return data.vocabulary;
  return pairs ? pairs->size() : 256;
}

// data.vocabulary may be larger than the encoding's, padded to a round number.
std::string text_of(std::int64_t token, const std::optional<tokenizer::BytePairs>& pairs) {
  if (!pairs) return std::string(1, static_cast<char>(token));
  return token < pairs->size() ? pairs->decode(static_cast<tokenizer::Token>(token)) : "\xEF\xBF\xBD";  // U+FFFD
}

// A mixture of experts drops tokens by their number in a call; a plugin's model may look at other positions.
bool decodes_incrementally(const TrainConfig::Model& model, const plugin::Registry& registry) {
  return model.name == "gpt" && model.experts.experts == 0 && !registry.models.contains(model.name);
}

// Extends generate.prompt with the trained model, and writes the text to standard output as it is made.
int generate(const CommandContext& context) {
  const TrainConfig& config = context.config;
  const plugin::Registry& registry = context.registry;
  check_data(config.data);
  const auto pairs = byte_pairs_of(config.data);
  const auto layout = data::token_layout(config.data.context, vocabulary_of(config.data, pairs));
  const auto task = tasks::make_task("language_modelling", {.layout = layout});
  const auto& quantized = config.generate.quantized;
  const auto model = quantized.empty() ? load_trained_model("generate", config, layout, *task, registry)
                                       : load_quantized_model(quantized, config, layout, *task, registry);
  const auto& options = config.generate;
  Generator generator(static_cast<std::uint64_t>(options.seed));
  // Without a prompt the text begins as it would after a line.
  const std::string prompt = options.prompt.empty() ? "\n" : options.prompt;
  write_standard_output(options.prompt);
  generate_tokens(*model, tokens_of(prompt, pairs),
                  {.tokens = options.tokens,
                   .context = config.data.context,
                   .incremental = decodes_incrementally(config.model, registry),
                   .sampling = {.temperature = options.temperature, .top_k = options.top_k}},
                  generator, [&](std::int64_t token) { write_standard_output(text_of(token, pairs)); });
  write_standard_output("\n");
  return exit_success;
}

}  // namespace

Command generate_command() {
  return {.name = "generate",
          .usage = "generate train.cfg [--section.key=value ...]",
          .help =
              "generate continues a text with the model of the newest checkpoint, or of model.weights; its keys are "
              "those of [generate].\n",
          .run = generate};
}

}  // namespace ddprun::trainer
