#include "worker/parallel/forms/tensor/tensor_parallel.h"

#include <algorithm>

#include "common/error.h"
#include "worker/autograd/placement_check.h"
#include "worker/nn/layers/attention.h"
#include "worker/nn/layers/dropout.h"
#include "worker/nn/layers/mixture_of_experts.h"
#include "worker/nn/layers/position_embedding.h"
#include "worker/nn/sample_part.h"
#include "worker/parallel/forms/tensor/cross_entropy.h"
#include "worker/parallel/forms/tensor/layers.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

template <class M>
M& as(nn::Module& model, const TensorRule& rule, const char* kind) {
  if (auto* module = dynamic_cast<M*>(&model.module(rule.module))) return *module;
  throw make_error(Errc::usage, "tensor parallelism: module {} is no {}", rule.module, kind);
}

// Returns the layer that runs: one that rounds inputs and weight takes the place of the model's.
nn::WeightedLayer& layer(nn::Module& model, const TensorRule& rule) {
  auto& own = as<nn::WeightedLayer>(model, rule, "linear layer");
  auto* const rounded = dynamic_cast<nn::WeightedLayer*>(own.substitute());
  return rounded ? *rounded : own;
}

// Returns the dimension of a layer's weight that a rule shards.
std::size_t weight_dimension(const nn::WeightedLayer& layer, TensorStyle style) {
  const std::size_t outputs = layer.output_dimension();
  return style == TensorStyle::column ? outputs : 1 - outputs;
}

// Makes the inputs of a dropout this rank's equal part of what they were.
void set_own_part(nn::Dropout& dropout, const CountedGroup& group) {
  dropout.set_sample_part(nn::equal_part(dropout.sample_part(), group.rank(), group.size()));
}

// Makes the results of a position embedding this rank's equal part of what they were. Its inputs have all tokens still.
void set_own_part(nn::PositionEmbedding& embedding, const CountedGroup& group) {
  embedding.set_sample_part([part = nn::equal_part(embedding.sample_part(), group.rank(), group.size()),
                             ranks = group.size()](std::int64_t tokens) { return part(tokens / ranks); });
}

struct Size {
  std::int64_t size;
  const char* of;
};

// Returns the size that has to be a multiple of the number of ranks.
Size size_of_rule(nn::Module& model, const TensorRule& rule) {
  switch (rule.style) {
    case TensorStyle::heads:
      return {as<nn::CausalSelfAttention>(model, rule, "attention").heads(), "heads"};
    case TensorStyle::column:
    case TensorStyle::row: {
      const auto& weight = layer(model, rule).weight();
      const bool is_column = rule.style == TensorStyle::column;
      const std::size_t dimension = weight_dimension(layer(model, rule), rule.style);
      return {weight.shape()[dimension] / rule.pieces, is_column ? "outputs" : "inputs"};
    }
    case TensorStyle::vocabulary_embedding:
    case TensorStyle::vocabulary_head:
      return {model.parameter(rule.module + ".weight").shape()[0], "tokens of the vocabulary"};
    case TensorStyle::experts:
      return {as<nn::MixtureOfExperts>(model, rule, "mixture of experts").options().hidden, "features of experts"};
    case TensorStyle::dropout:
    case TensorStyle::own_positions:
    case TensorStyle::partial_gradients:
      break;
  }
  return {0, ""};
}

void check(nn::Module& model, const TensorPlan& plan, int ranks) {
  for (const TensorRule& rule : plan) {
    const auto [size, of] = size_of_rule(model, rule);
    if (size % ranks != 0)
      throw make_error(Errc::usage, "module {}: {} {} are no multiple of {} tensor-parallel ranks", rule.module, size,
                       of, ranks);
  }
}

}  // namespace

TensorParallel::TensorParallel(nn::Module& model, const TensorPlan& plan, ProcessGroup& group)
    : group_(group), shards_("tensor", group) {
  check(model, plan, group.size());
  align_ranks(group, model.named_parameters(), model.named_buffers());
  const bool shards_positions = std::ranges::count(plan, TensorStyle::own_positions, &TensorRule::style) > 0;
  if (shards_positions) unsharded_ = Unsharded::positions;
  for (const TensorRule& rule : plan) apply(model, rule);
  declare_placements(model);
}

// A parameter is local also where only its gradients are. One that is frozen has none, and goes with all values.
void TensorParallel::declare_placements(const nn::Module& model) const {
  const auto own = own_gradients();
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    const bool is_local = std::ranges::count(own, name) > 0;
    autograd::declare_placement(parameter, name,
                                is_local ? autograd::LocalAxes{shards_.axis()} : autograd::LocalAxes{});
  }
}

std::vector<std::string> TensorParallel::own_gradients() const {
  std::vector<std::string> names = shards_.names();
  names.insert(names.end(), partial_.begin(), partial_.end());
  return names;
}

Form::CrossEntropy TensorParallel::cross_entropy(std::int64_t ignored) {
  if (!shards_scores_) return {};
  return [this, ignored](const Variable& scores, const Tensor& targets) {
    return vocabulary_parallel_cross_entropy(scores, targets, group_, ignored);
  };
}

void TensorParallel::complete_gradients(const optim::NamedParameters& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (!partial_.contains(name) || !parameter.grad().defined() || parameter.value().numel() == 0) continue;
    Tensor gradient = parameter.grad();
    gradient.copy_from(sum_over(group_, gradient));
    gradient.storage()->bump_version();
  }
}

void TensorParallel::apply(nn::Module& model, const TensorRule& rule) {
  nn::Module& module = model.module(rule.module);
  switch (rule.style) {
    case TensorStyle::heads: {
      auto& attention = as<nn::CausalSelfAttention>(model, rule, "attention");
      return attention.set_heads(attention.heads() / group_.size());
    }
    case TensorStyle::column: {
      auto& whole = layer(model, rule);
      shards_.shard(model, rule.module + ".weight", weight_dimension(whole, rule.style), rule.pieces);
      if (whole.bias().defined()) shards_.shard(model, rule.module + ".bias", 0, rule.pieces);
      return whole.set_substitute(std::make_unique<ColumnParallelLinear>(whole, group_, unsharded_));
    }
    case TensorStyle::row: {
      auto& whole = layer(model, rule);
      shards_.shard(model, rule.module + ".weight", weight_dimension(whole, rule.style));
      if (unsharded_ == Unsharded::positions && whole.bias().defined() && whole.bias().requires_grad())
        partial_.insert(rule.module + ".bias");
      return whole.set_substitute(std::make_unique<RowParallelLinear>(whole, group_, unsharded_));
    }
    case TensorStyle::vocabulary_embedding:
      shards_.shard(model, rule.module + ".weight", 0);
      return module.set_substitute(std::make_unique<VocabularyParallelEmbedding>(module, group_, unsharded_));
    case TensorStyle::vocabulary_head:
      shards_scores_ = true;
      return module.set_substitute(std::make_unique<VocabularyParallelHead>(module, group_, unsharded_));
    case TensorStyle::experts: {
      auto& mixture = as<nn::MixtureOfExperts>(model, rule, "mixture of experts");
      shards_.shard(model, rule.module + ".c_fc.weight", 2);
      if (mixture.options().bias) shards_.shard(model, rule.module + ".c_fc.bias", 1);
      shards_.shard(model, rule.module + ".c_proj.weight", 1);
      if (!expert_slices_) expert_slices_ = std::make_unique<SlicesOfExperts>(group_, unsharded_);
      return mixture.set_slices(expert_slices_.get());
    }
    case TensorStyle::dropout:
      return set_own_part(as<nn::Dropout>(model, rule, "dropout"), group_);
    case TensorStyle::own_positions:
      return set_own_part(as<nn::PositionEmbedding>(model, rule, "position embedding"), group_);
    case TensorStyle::partial_gradients:
      for (const auto& [name, parameter] : module.named_parameters())
        if (parameter.requires_grad()) partial_.insert(rule.module + "." + name);
      return;
  }
}

}  // namespace ddprun
