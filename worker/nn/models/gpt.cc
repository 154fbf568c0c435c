// GPT-2 (Radford et al. 2019): a transformer decoder with normalization before each part of a block, learned position
// embeddings and an output layer that shares the token embedding's weight. Parameter names, layouts and order are those
// of Hugging Face's GPT2Model: its weights load without conversion.
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/autograd/deferred_output.h"
#include "worker/autograd/ops.h"
#include "worker/nn/layers.h"
#include "worker/nn/layers/initial.h"
#include "worker/nn/layers/position_embedding.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {
namespace {

constexpr double deviation = 0.02;

struct Preset {
  std::string_view name;
  std::int64_t layers, heads, width, context;
  std::int64_t vocabulary = 0;
};
constexpr Preset presets[] = {
    {"nano", 4, 4, 128, 128},
    {"small", 6, 6, 384, 256},
    {"gpt2", 12, 12, 768, 1024, 50257},
};

struct GptConfig {
  GptOptions sizes;
  double dropout = 0;
  ExpertOptions experts;
};

// The deviation of the projections whose results are added to the residual stream: scaled so that its variance does not
// grow with the number of layers.
double residual_deviation(const GptOptions& sizes) {
  return deviation / std::sqrt(2 * static_cast<double>(sizes.layers));
}

std::unique_ptr<CausalSelfAttention> make_attention(const GptConfig& config, Generator& generator) {
  return std::make_unique<CausalSelfAttention>(
      CausalSelfAttentionOptions{.width = config.sizes.width,
                                 .heads = config.sizes.heads,
                                 .bias = config.sizes.bias,
                                 .dropout = config.dropout,
                                 .deviation = deviation,
                                 .result_deviation = residual_deviation(config.sizes)},
      generator);
}

// (batch, time, width) -> the same, each position by itself.
class Mlp : public Module {
 public:
  Mlp(const GptConfig& config, Generator& generator)
      : c_fc_(register_module("c_fc", std::make_unique<Conv1D>(config.sizes.width, 4 * config.sizes.width, deviation,
                                                               config.sizes.bias, generator))),
        c_proj_(register_module(
            "c_proj", std::make_unique<Conv1D>(4 * config.sizes.width, config.sizes.width,
                                               residual_deviation(config.sizes), config.sizes.bias, generator))),
        dropout_(register_module("dropout", make_dropout(config.dropout, generator))) {}

  // Returns whether a second input, the residual stream, may be added to the result, and all be one operation.
  bool adds_residual() const { return is_plain() && c_fc_.is_plain() && c_proj_.is_plain() && dropout_.is_identity(); }

 private:
  Variable forward(const Variable& input) override { return dropout_(c_proj_(gelu_tanh(c_fc_(input)))); }
  std::vector<Variable> forward_all(const std::vector<Variable>& inputs) override {
    if (inputs.size() != 2) return Module::forward_all(inputs);
    return {residual_mlp(inputs[1], inputs[0], {c_fc_.weight(), c_fc_.bias(), c_proj_.weight(), c_proj_.bias()})};
  }

  Conv1D &c_fc_, &c_proj_;
  Dropout& dropout_;
};

// The MLP of a block, counted from 0.
std::unique_ptr<Module> make_mlp(const GptConfig& config, std::int64_t block, Generator& generator) {
  const ExpertOptions& e = config.experts;
  if (e.experts == 0 || (block + 1) % e.every != 0) return std::make_unique<Mlp>(config, generator);
  return std::make_unique<MixtureOfExperts>(
      MixtureOfExpertsOptions{.width = config.sizes.width,
                              .hidden = 4 * config.sizes.width,
                              .experts = e.experts,
                              .per_token = e.per_token,
                              .capacity_factor = e.capacity_factor,
                              .load_balancing_loss = e.load_balancing_loss,
                              .router_z_loss = e.router_z_loss,
                              .bias = config.sizes.bias,
                              .dropout = config.dropout,
                              .deviation = deviation,
                              .result_deviation = residual_deviation(config.sizes)},
      generator);
}

// (..., width) -> (..., vocabulary), by the weight of the token embedding.
class TiedHead : public Module {
 public:
  explicit TiedHead(const Variable& weight) : weight_(register_parameter("weight", weight)) {}

 private:
  Variable forward(const Variable& input) override {
    const bool together = input.device() == weight_.device();  // false in stages on devices that share the embedding
    return together && is_plain() && autograd::DeferredOutput::take(weight_) ? input : linear(input, weight_);
  }

  Variable weight_;
};

// Routing looks at a norm's result itself; all its other users are products.
std::unique_ptr<LayerNorm> make_norm(const GptConfig& config) {
  auto norm = std::make_unique<LayerNorm>(config.sizes.width, 1e-5, config.sizes.bias);
  if (config.experts.experts == 0) norm->lower_results();
  return norm;
}

// Returns residual + part(input).
template <class Part>
Variable add_part(const Variable& residual, Part* part, Module& module, const Variable& input) {
  const bool fuses = residual.device().type == DeviceType::cuda && part != nullptr && part->adds_residual();
  return fuses ? module({input, residual})[0] : add(residual, module(input));
}

class Block : public Module {
 public:
  Block(const GptConfig& config, std::int64_t number, Generator& generator)
      : ln_1_(register_module("ln_1", make_norm(config))),
        attn_(register_module("attn", make_attention(config, generator))),
        ln_2_(register_module("ln_2", make_norm(config))),
        mlp_(register_module("mlp", make_mlp(config, number, generator))) {}

 private:
  Variable forward(const Variable& input) override {
    const Variable x = add_part(input, &attn_, attn_, ln_1_(input));
    return add_part(x, dynamic_cast<Mlp*>(&mlp_), mlp_, ln_2_(x));
  }
  Part part() const override { return Part::block; }

  LayerNorm& ln_1_;
  CausalSelfAttention& attn_;
  LayerNorm& ln_2_;
  Module& mlp_;
};

class Gpt : public Module {
 public:
  Gpt(const GptConfig& config, Generator& generator)
      : wte_(register_module(
            "wte", std::make_unique<Embedding>(config.sizes.vocabulary, config.sizes.width, generator, deviation))),
        wpe_(register_module("wpe", std::make_unique<PositionEmbedding>(config.sizes.context, config.sizes.width,
                                                                        generator, deviation))),
        drop_(register_module("drop", make_dropout(config.dropout, generator))),
        h_(register_module("h", std::make_unique<Sequential>())),
        ln_f_(register_module("ln_f", make_norm(config))),
        lm_head_(register_module("lm_head", std::make_unique<TiedHead>(wte_.parameter("weight")))) {
    for (std::int64_t i = 0; i < config.sizes.layers; ++i) h_.add(std::make_unique<Block>(config, i, generator));
  }

 private:
  Variable forward(const Variable& input) override { return lm_head_(ln_f_(h_(embed(input)))); }
  Variable embed(const Variable& input) { return drop_(add(wte_(input), wpe_(input))); }
  std::vector<Piece> sequence() override {
    return {{"wte", {&wte_, &wpe_, &drop_}, [this](const Variable& input) { return embed(input); }},
            {"h", {&h_}},
            {"ln_f", {&ln_f_}},
            {"lm_head", {&lm_head_}}};
  }

  Embedding& wte_;
  PositionEmbedding& wpe_;
  Dropout& drop_;
  Sequential& h_;
  LayerNorm& ln_f_;
  TiedHead& lm_head_;
};

const Preset& preset_of(std::string_view name) {
  for (const Preset& preset : presets)
    if (preset.name == name) return preset;
  throw make_error(Errc::usage, "model gpt: there is no preset '{}'; there are: {}", name,
                   fmt::join(gpt_presets(), ", "));
}

void check(const GptOptions& sizes) {
  for (const std::int64_t size : {sizes.layers, sizes.heads, sizes.width, sizes.context})
    if (size < 1) throw make_error(Errc::usage, "model gpt: a size of {} is not possible", size);
  if (sizes.width % sizes.heads != 0)
    throw make_error(Errc::usage, "model gpt: a width of {} is no multiple of {} heads", sizes.width, sizes.heads);
}

}  // namespace

std::vector<std::string_view> gpt_presets() {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets) names.push_back(preset.name);
  return names;
}

GptOptions with_preset(const GptOptions& options) {
  const Preset& preset = preset_of(options.preset);
  const auto either = [](std::int64_t given, std::int64_t otherwise) { return given != 0 ? given : otherwise; };
  GptOptions sizes = options;
  sizes.layers = either(options.layers, preset.layers);
  sizes.heads = either(options.heads, preset.heads);
  sizes.width = either(options.width, preset.width);
  sizes.context = either(options.context, preset.context);
  sizes.vocabulary = either(options.vocabulary, preset.vocabulary);
  return sizes;
}

std::unique_ptr<Module> make_gpt(const ModelOptions& options, Generator& generator) {
  GptConfig config{.sizes = with_preset(options.gpt), .dropout = options.dropout, .experts = options.experts};
  check(config.sizes);
  if (config.sizes.vocabulary == 0) config.sizes.vocabulary = options.outputs;
  if (config.sizes.vocabulary < options.outputs)
    throw make_error(Errc::usage, "model gpt: a vocabulary of {} is too small for {} tokens", config.sizes.vocabulary,
                     options.outputs);
  if (options.input.size() != 1 || options.input[0] > config.sizes.context)
    throw make_error(Errc::usage, "model gpt: the input has shape {}, not (time) of at most {} tokens",
                     to_string(options.input), config.sizes.context);
  return std::make_unique<Gpt>(config, generator);
}

}  // namespace ddprun::nn
