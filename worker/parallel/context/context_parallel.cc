#include "ddprun/worker/parallel/context/context_parallel.h"

#include <algorithm>
#include <memory>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/ops/shape.h"
#include "ddprun/worker/parallel/context/ring_attention.h"
#include "ddprun/worker/parallel/context/zigzag.h"

namespace ddprun {
namespace {

constexpr auto* position_embedding = "wpe";

// (batch, time) -> (time, width): the rows of this rank's positions, whatever the tokens.
class OwnPositionEmbedding : public nn::Module {
 public:
  OwnPositionEmbedding(const nn::Module& embedding, const ContextGroup& group)
      : weight_(register_parameter("weight", embedding.parameter("weight"))), group_(group) {}

 private:
  Variable forward(const Variable& tokens) override {
    const std::int64_t piece = tokens.shape()[1] / 2, positions = 2 * piece * group_.size();
    if (positions > weight_.shape()[0])
      throw make_error(Errc::usage, "context parallelism: {} positions, and the model has {}", positions,
                       weight_.shape()[0]);
    const Pieces pieces = pieces_of(group_.rank(), group_.size());
    return concat({slice(weight_, 0, pieces.first * piece, piece), slice(weight_, 0, pieces.second * piece, piece)}, 0);
  }

  Variable weight_;
  const ContextGroup& group_;
};

std::vector<nn::CausalSelfAttention*> attentions_of(nn::Module& model) {
  std::vector<nn::CausalSelfAttention*> all;
  model.for_each_module([&](nn::Module& module) {
    if (auto* attention = dynamic_cast<nn::CausalSelfAttention*>(&module)) all.push_back(attention);
  });
  if (all.empty()) throw make_error(Errc::usage, "context parallelism: the model has no causal attention");
  if (std::ranges::any_of(all, &nn::CausalSelfAttention::drops_weights))
    throw make_error(Errc::usage, "context parallelism: the weights of attention cannot be dropped");
  return all;
}

}  // namespace

ContextParallel::ContextParallel(nn::Module& model, ProcessGroup& group)
    : group_(group), attentions_(attentions_of(model)), positions_(model.module(position_embedding)) {
  positions_.set_substitute(std::make_unique<OwnPositionEmbedding>(positions_, group_));
  for (auto* attention : attentions_)
    attention->set_attention(
        [this](const Variable& packed, std::int64_t heads) { return ring_attention(packed, heads, group_); });
}

ContextParallel::~ContextParallel() {
  positions_.set_substitute(nullptr);
  for (auto* attention : attentions_) attention->set_attention({});
}

Tensor ContextParallel::own_positions(const Tensor& all) const {
  return ddprun::own_positions(all, 1, group_.rank(), group_.size());
}

}  // namespace ddprun
