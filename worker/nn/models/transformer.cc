// A transformer encoder that classifies a sequence, or predicts numbers from it: a linear layer brings each element to
// the width of the encoder, learned positions are added, the mean over the encoder's results goes to a linear layer.
// The elements are those of a sample (time, features), or the rows of an image with all channels.
#include "common/error.h"
#include "worker/autograd/ops.h"
#include "worker/nn/layers.h"
#include "worker/nn/layers/initial.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {
namespace {

constexpr double position_deviation = 0.02;

struct Sequence {
  std::int64_t time, features;
};

Sequence sequence_of(const Shape& sample) {
  if (sample.size() == 2) return {sample[0], sample[1]};
  if (sample.size() == 3) return {sample[1], sample[0] * sample[2]};
  throw make_error(Errc::usage,
                   "model transformer: the input has shape {}, not (time, features) or (channels, height, width)",
                   to_string(sample));
}

// (batch, time, features), or images (batch, channels, height, width) -> (batch, height, channels x width)
Variable elements_of(const Variable& input) {
  const Shape& shape = input.shape();
  if (shape.size() == 3) return input;
  return reshape(permute(input, {0, 2, 1, 3}), {shape[0], shape[2], shape[1] * shape[3]});
}

// (batch, time, width) -> the same: a row of the weight is added to each position.
class Positions : public Module {
 public:
  Positions(std::int64_t time, std::int64_t width, Generator& generator)
      : weight_(register_parameter("weight", normal({time, width}, position_deviation, generator))) {}

 private:
  Variable forward(const Variable& input) override { return add(input, weight_); }

  Variable weight_;
};

class Transformer : public Module {
 public:
  Transformer(const Sequence& input, std::int64_t layers, const TransformerEncoderOptions& options,
              std::int64_t outputs, Generator& generator)
      : embed_(register_module("embed", std::make_unique<Linear>(input.features, options.width, generator))),
        position_(register_module("position", std::make_unique<Positions>(input.time, options.width, generator))),
        dropout_(register_module("dropout", make_dropout(options.dropout, generator))),
        encoder_(register_module("encoder", std::make_unique<TransformerEncoder>(layers, options, generator))),
        fc_(register_module("fc", std::make_unique<Linear>(options.width, outputs, generator))) {}

 private:
  Variable forward(const Variable& input) override {
    return fc_(mean(encoder_(dropout_(position_(embed_(elements_of(input))))), {1}));
  }

  Linear& embed_;
  Positions& position_;
  Dropout& dropout_;
  TransformerEncoder& encoder_;
  Linear& fc_;
};

}  // namespace

std::vector<std::string_view> transformer_activations() {
  return {"gelu", "relu"};
}

std::unique_ptr<Module> make_transformer(const ModelOptions& options, Generator& generator) {
  const GptOptions sizes = with_preset(options.gpt);
  if (sizes.layers < 1 || sizes.heads < 1 || sizes.width < 1 || sizes.width % sizes.heads != 0)
    throw make_error(Errc::usage, "model transformer: {} layers of width {} with {} heads are not possible",
                     sizes.layers, sizes.width, sizes.heads);
  const auto& encoder = options.encoder;
  if (encoder.feedforward < 0 || (encoder.activation != "gelu" && encoder.activation != "relu"))
    throw make_error(Errc::usage, "model transformer: {} features behind {} are not possible", encoder.feedforward,
                     encoder.activation);
  return std::make_unique<Transformer>(
      sequence_of(options.input), sizes.layers,
      TransformerEncoderOptions{.width = sizes.width,
                                .heads = sizes.heads,
                                .feedforward = encoder.feedforward > 0 ? encoder.feedforward : 4 * sizes.width,
                                .dropout = options.dropout,
                                .gelu = encoder.activation == "gelu",
                                .norm_first = encoder.norm_first},
      options.outputs, generator);
}

}  // namespace ddprun::nn
