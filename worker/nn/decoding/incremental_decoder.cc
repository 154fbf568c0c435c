#include "worker/nn/decoding/incremental_decoder.h"

#include <memory>

#include "common/error.h"
#include "worker/autograd/ops/attention.h"
#include "worker/autograd/ops/shape.h"
#include "worker/tensor/kernels.h"

namespace ddprun::nn {
namespace {

// (1, time) -> (time, width): the rows of the positions from start on, whatever the tokens.
class PositionsFrom : public Module {
 public:
  PositionsFrom(const Module& embedding, const std::int64_t& start)
      : weight_(register_parameter("weight", embedding.parameter("weight"))), start_(start) {}

 private:
  Variable forward(const Variable& tokens) override { return slice(weight_, 0, start_, tokens.shape()[1]); }

  Variable weight_;
  const std::int64_t& start_;
};

}  // namespace

IncrementalDecoder::IncrementalDecoder(Module& model, std::int64_t positions)
    : model_(model), position_embedding_(model.module("wpe")), positions_(positions) {
  model.for_each_module([&](Module& module) {
    if (auto* attention = dynamic_cast<CausalSelfAttention*>(&module)) layers_.push_back({attention});
  });
  if (layers_.empty()) throw Error(Errc::usage, "incremental decoding: the model has no causal attention");
  position_embedding_.set_substitute(std::make_unique<PositionsFrom>(position_embedding_, length_));
  for (Layer& layer : layers_)
    layer.attention->set_attention(
        [this, &layer](const Variable& packed, std::int64_t heads) { return attend(layer, packed, heads); });
}

IncrementalDecoder::~IncrementalDecoder() {
  position_embedding_.set_substitute(nullptr);
  for (const Layer& layer : layers_) layer.attention->set_attention({});
}

Variable IncrementalDecoder::operator()(const Tensor& tokens) {
  Variable result = model_(Variable(tokens));
  length_ += tokens.size(1);
  return result;
}

// packed: the query, key and value of each new position.
Variable IncrementalDecoder::attend(Layer& layer, const Variable& packed, std::int64_t heads) const {
  const Tensor x = packed.value().contiguous();
  const std::int64_t time = x.size(1), width = x.size(2) / (3 * heads);
  const Tensor parts = x.reshape({1, time, 3, heads, width});
  const auto part = [&](std::int64_t i) { return parts.select(2, i).transpose(1, 2); };
  const auto append = [&](const Tensor& added, Tensor& all) {
    if (!all.defined()) all = Tensor::empty({1, heads, positions_, width}, x.dtype(), x.device());
    Tensor end = all.slice(2, length_, time);
    kernels::copy(added, end);
    return Variable(all.slice(2, 0, length_ + time));
  };
  const Variable keys = append(part(1), layer.keys), values = append(part(2), layer.values);
  const Variable seen = attention(Variable(part(0)), keys, values, {.causal = true});
  return Variable(seen.value().transpose(1, 2).contiguous().reshape({1, time, heads * width}));
}

}  // namespace ddprun::nn
