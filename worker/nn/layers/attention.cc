#include "worker/nn/layers/attention.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/attention.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/autograd/ops/shape.h"
#include "worker/nn/layers/initial.h"
#include "worker/tensor/kernels.h"

namespace ddprun::nn {
namespace {

// (batch, time, width) -> (batch, heads, time, width / heads)
Variable by_head(const Variable& x, std::int64_t heads) {
  const Shape& shape = x.shape();
  return permute(reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

// Computes softmax(scores + given mask) in one operation: the masked scores are no result, which would have to be
// finite (AnomalyScope).
Variable masked_softmax(const Variable& given, const Tensor& given_mask) {
  const Variable scores = autograd::autocast(autograd::CastClass::float32, given);
  const autograd::Function operation("masked_softmax", {scores});
  const Tensor x = scores.value().contiguous();
  const std::int64_t keys = x.size(-1);
  const kernels::Axis rows{x.numel() / keys, keys, 1};
  const Tensor mask = given_mask.to(x.dtype()).to(x.device());
  Tensor masked = Tensor::empty_like(x), y = Tensor::empty_like(x);
  kernels::of(x).binary(kernels::Binary::add, {}, x, mask.expand(x.shape()), masked);
  kernels::of(x).softmax(masked, rows, false, y);
  return operation.record(y, {y}, [rows](autograd::Backward& pass) {
    Tensor gradient = Tensor::empty_like(pass.grad());
    kernels::of(gradient).softmax_gradient(pass.saved(0), pass.grad(), rows, false, gradient);
    pass.add(0, std::move(gradient));
  });
}

// Drops weights of (batch, time, 3 width).
Variable packed_attention_with_dropout(const Variable& packed, std::int64_t heads, bool causal, Dropout& dropout) {
  const std::int64_t time = packed.shape()[1], width = packed.shape()[2] / 3;
  const std::vector<Variable> parts = split(packed, {width, width, width}, 2);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(time));
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  const Tensor mask = causal ? causal_mask(positions, time) : Tensor();
  return attention_with_dropout(parts[0], parts[1], parts[2], heads, mask, dropout);
}

}  // namespace

Tensor causal_mask(const std::vector<std::int64_t>& positions, std::int64_t keys) {
  Tensor mask = Tensor::zeros({std::ssize(positions), keys});
  auto* row = mask.data<float>();
  for (const std::int64_t position : positions) {
    for (std::int64_t key = position + 1; key < keys; ++key) row[key] = -std::numeric_limits<float>::infinity();
    row += keys;
  }
  return mask;
}

Variable attention_with_dropout(const Variable& query, const Variable& key, const Variable& value, std::int64_t heads,
                                const Tensor& mask, Dropout& weights_dropout) {
  const Shape& shape = query.shape();
  const double scale = 1 / std::sqrt(static_cast<double>(shape[2] / heads));
  const Variable q = by_head(query, heads), k = by_head(key, heads), v = by_head(value, heads);
  const Variable scores = mul(matmul(q, transpose(k, -2, -1)), scale);
  const Variable seen = matmul(weights_dropout(mask.defined() ? masked_softmax(scores, mask) : softmax(scores)), v);
  return reshape(permute(seen, {0, 2, 1, 3}), shape);
}

CausalSelfAttention::CausalSelfAttention(const CausalSelfAttentionOptions& o, Generator& generator)
    : heads_(o.heads),
      drops_weights_(o.dropout > 0),
      c_attn_(
          register_module("c_attn", std::make_unique<Conv1D>(o.width, 3 * o.width, o.deviation, o.bias, generator))),
      c_proj_(
          register_module("c_proj", std::make_unique<Conv1D>(o.width, o.width, o.result_deviation, o.bias, generator))),
      attn_dropout_(register_module("attn_dropout", make_dropout(o.dropout, generator))),
      resid_dropout_(register_module("resid_dropout", make_dropout(o.dropout, generator))) {}

Variable CausalSelfAttention::forward(const Variable& input) {
  return resid_dropout_(c_proj_(attend(c_attn_(input))));
}

std::vector<Variable> CausalSelfAttention::forward_all(const std::vector<Variable>& inputs) {
  if (inputs.size() != 2) return Module::forward_all(inputs);
  return c_proj_({attend(c_attn_(inputs[0])), inputs[1]});
}

Variable CausalSelfAttention::attend(const Variable& packed) {
  if (attention_) return attention_(packed, heads_);
  return drops_weights() ? packed_attention_with_dropout(packed, heads_, true, attn_dropout_)
                         : packed_attention(packed, heads_, {.causal = true});
}

SelfAttention::SelfAttention(std::int64_t width, std::int64_t heads, double dropout, Generator& generator)
    : heads_(heads),
      drops_weights_(dropout > 0),
      in_proj_weight_(register_parameter("in_proj_weight", xavier_uniform({3 * width, width}, generator))),
      in_proj_bias_(register_parameter("in_proj_bias", Tensor::zeros({3 * width}))),
      out_proj_(register_module("out_proj", std::make_unique<Linear>(width, width, generator))),
      dropout_(register_module("dropout", make_dropout(dropout, generator))) {
  Tensor(out_proj_.bias().value()).copy_from(Tensor::zeros({width}));
}

Variable SelfAttention::forward(const Variable& input) {
  const Variable packed = linear(input, in_proj_weight_, in_proj_bias_);
  const bool drops = drops_weights_ && training();
  return out_proj_(drops ? packed_attention_with_dropout(packed, heads_, false, dropout_)
                         : packed_attention(packed, heads_));
}

}  // namespace ddprun::nn
