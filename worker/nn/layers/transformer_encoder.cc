#include "worker/nn/layers/transformer_encoder.h"

#include "worker/autograd/ops.h"

namespace ddprun::nn {

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerEncoderOptions& o, Generator& generator)
    : gelu_(o.gelu),
      norm_first_(o.norm_first),
      self_attn_(register_module("self_attn", std::make_unique<SelfAttention>(o.width, o.heads, o.dropout, generator))),
      linear1_(register_module("linear1", std::make_unique<Linear>(o.width, o.feedforward, generator))),
      linear2_(register_module("linear2", std::make_unique<Linear>(o.feedforward, o.width, generator))),
      norm1_(register_module("norm1", std::make_unique<LayerNorm>(o.width))),
      norm2_(register_module("norm2", std::make_unique<LayerNorm>(o.width))),
      dropout_(register_module("dropout", make_dropout(o.dropout, generator))),
      dropout1_(register_module("dropout1", make_dropout(o.dropout, generator))),
      dropout2_(register_module("dropout2", make_dropout(o.dropout, generator))) {}

Variable TransformerEncoderLayer::attend(const Variable& input) {
  return dropout1_(self_attn_(input));
}

Variable TransformerEncoderLayer::feed_forward(const Variable& input) {
  const Variable inner = linear1_(input);
  return dropout2_(linear2_(dropout_(gelu_ ? gelu(inner) : relu(inner))));
}

Variable TransformerEncoderLayer::forward(const Variable& input) {
  if (norm_first_) {
    const Variable x = add(input, attend(norm1_(input)));
    return add(x, feed_forward(norm2_(x)));
  }
  const Variable x = norm1_(add(input, attend(input)));
  return norm2_(add(x, feed_forward(x)));
}

TransformerEncoder::TransformerEncoder(std::int64_t layers, const TransformerEncoderOptions& options,
                                       Generator& generator)
    : layers_(register_module("layers", std::make_unique<Sequential>())) {
  for (std::int64_t i = 0; i < layers; ++i) layers_.add(std::make_unique<TransformerEncoderLayer>(options, generator));
  if (options.norm_first) norm_ = &register_module("norm", std::make_unique<LayerNorm>(options.width));
}

Variable TransformerEncoder::forward(const Variable& input) {
  const Variable output = layers_(input);
  return norm_ ? (*norm_)(output) : output;
}

}  // namespace ddprun::nn
