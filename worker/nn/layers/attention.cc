#include "ddprun/worker/nn/layers/attention.h"

#include <cmath>
#include <limits>

#include "ddprun/worker/autograd/ops/activation.h"
#include "ddprun/worker/autograd/ops/attention.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/autograd/ops/matmul.h"
#include "ddprun/worker/autograd/ops/reduce.h"
#include "ddprun/worker/autograd/ops/shape.h"

namespace ddprun::nn {
namespace {

// (batch, time, width) -> (batch, heads, time, width / heads)
Variable by_head(const Variable& x, std::int64_t heads) {
  const Shape& shape = x.shape();
  return permute(reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

// (time, time): minus infinity where a position is later than the query's.
Variable causal_mask(const Variable& query) {
  const std::int64_t time = query.shape()[2];
  Tensor mask = Tensor::zeros({time, time});
  for (std::int64_t i = 0; i < time; ++i)
    for (std::int64_t j = i + 1; j < time; ++j)
      mask.data<float>()[i * time + j] = -std::numeric_limits<float>::infinity();
  return Variable(mask.to(query.dtype()).to(query.device()));
}

}  // namespace

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
  const Variable packed = c_attn_(input);
  const bool drops = drops_weights_ && training();
  return resid_dropout_(
      c_proj_(drops ? attend_with_dropout(packed) : packed_attention(packed, heads_, {.causal = true})));
}

// The probabilities have to exist for some of them to be dropped.
Variable CausalSelfAttention::attend_with_dropout(const Variable& packed) {
  Shape shape = packed.shape();
  shape.back() /= 3;
  const std::vector<Variable> parts = split(packed, {shape[2], shape[2], shape[2]}, 2);
  const Variable query = by_head(parts[0], heads_), key = by_head(parts[1], heads_), value = by_head(parts[2], heads_);
  const double scale = 1 / std::sqrt(static_cast<double>(query.shape().back()));
  const Variable scores = add(mul(matmul(query, transpose(key, -2, -1)), scale), causal_mask(query));
  const Variable seen = matmul(attn_dropout_(softmax(scores)), value);
  return reshape(permute(seen, {0, 2, 1, 3}), shape);
}

}  // namespace ddprun::nn
