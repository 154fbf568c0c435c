#include "worker/parallel/forms/context/context_parallel.h"

#include "common/error.h"
#include "worker/parallel/forms/context/gathered_attention.h"
#include "worker/parallel/forms/context/ring_attention.h"
#include "worker/parallel/forms/context/zigzag.h"

namespace ddprun {
namespace {

template <class M>
std::vector<M*> modules_of(nn::Module& model) {
  std::vector<M*> all;
  model.for_each_module([&](nn::Module& module) {
    if (auto* found = dynamic_cast<M*>(&module)) all.push_back(found);
  });
  return all;
}

std::vector<nn::CausalSelfAttention*> attentions_of(nn::Module& model) {
  auto all = modules_of<nn::CausalSelfAttention>(model);
  if (all.empty()) throw make_error(Errc::usage, "context parallelism: the model has no causal attention");
  return all;
}

nn::PositionEmbedding& positions_of(nn::Module& model) {
  const auto all = modules_of<nn::PositionEmbedding>(model);
  if (all.size() == 1) return *all.front();
  throw make_error(Errc::usage, "context parallelism: the model has {} position embeddings", all.size());
}

}  // namespace

ContextParallel::ContextParallel(nn::Module& model, ProcessGroup& group)
    : group_(group),
      attentions_(attentions_of(model)),
      dropouts_(modules_of<nn::Dropout>(model)),
      positions_(positions_of(model)) {
  const nn::SamplePart part = own_part(group.rank(), group.size());
  positions_.set_sample_part(part);
  for (auto* dropout : dropouts_) dropout->set_sample_part(part);
  for (auto* attention : attentions_) {
    attention->weights_dropout().set_sample_part(own_weights(attention->heads(), group.rank(), group.size()));
    attention->set_attention([this, attention](const Variable& packed, std::int64_t heads) {
      return attention->drops_weights() ? gathered_attention(packed, heads, group_, attention->weights_dropout())
                                        : ring_attention(packed, heads, group_);
    });
  }
}

ContextParallel::~ContextParallel() {
  positions_.set_sample_part({});
  for (auto* dropout : dropouts_) dropout->set_sample_part({});
  for (auto* attention : attentions_) attention->set_attention({});
}

Tensor ContextParallel::own_positions(const Tensor& all) const {
  return ddprun::own_positions(all, 1, group_.rank(), group_.size());
}

}  // namespace ddprun
