#include "ddprun/worker/parallel/tensor/tensor_parallel.h"

#include <algorithm>

#include "ddprun/common/error.h"
#include "ddprun/worker/nn/layers/attention.h"
#include "ddprun/worker/parallel/tensor/layers.h"
#include "ddprun/worker/reducer/model_check.h"

namespace ddprun {
namespace {

Span span_of_tensor(Tensor tensor) {
  return {tensor.raw(), static_cast<std::size_t>(tensor.numel()), tensor.dtype()};
}

// All ranks equal to rank 0, once it is certain that they mean the same.
void align_ranks(ProcessGroup& group, const nn::Module& model) {
  std::vector<ParameterRef> all;
  const auto add = [&all](const std::string& name, Tensor tensor) {
    all.push_back({name, tensor.shape().to_vector(), tensor.dtype(), tensor.raw()});
  };
  for (const auto& [name, parameter] : model.named_parameters()) add(name, parameter.value());
  for (const auto& [name, buffer] : model.named_buffers()) add(name, buffer);
  check_same_model(group, all);
  std::vector<Span> spans;
  for (const auto& each : all) spans.push_back(each.span());
  if (!spans.empty()) group.broadcast_coalesced(spans, 0, {.blocking = true});
}

template <class M>
M& as(nn::Module& model, const TensorRule& rule, const char* kind) {
  if (auto* module = dynamic_cast<M*>(&model.module(rule.module))) return *module;
  throw make_error(Errc::usage, "tensor parallelism: module {} is no {}", rule.module, kind);
}

nn::WeightedLayer& layer(nn::Module& model, const TensorRule& rule) {
  return as<nn::WeightedLayer>(model, rule, "linear layer");
}

// The dimension of a layer's weight that a rule divides.
std::int64_t weight_dim(const nn::WeightedLayer& layer, TensorStyle style) {
  const auto outputs = static_cast<std::int64_t>(layer.output_dimension());
  return style == TensorStyle::column ? outputs : 1 - outputs;
}

struct Size {
  std::int64_t size;
  const char* of;
};

// What has to be a multiple of the number of ranks.
Size size_of_rule(nn::Module& model, const TensorRule& rule) {
  switch (rule.style) {
    case TensorStyle::heads:
      return {as<nn::CausalSelfAttention>(model, rule, "attention").heads(), "heads"};
    case TensorStyle::column:
    case TensorStyle::row: {
      const auto& weight = layer(model, rule).weight();
      const bool is_column = rule.style == TensorStyle::column;
      const auto dim = static_cast<std::size_t>(weight_dim(layer(model, rule), rule.style));
      return {weight.shape()[dim] / rule.pieces, is_column ? "outputs" : "inputs"};
    }
    case TensorStyle::vocabulary_embedding:
    case TensorStyle::vocabulary_head:
      return {model.parameter(rule.module + ".weight").shape()[0], "tokens of the vocabulary"};
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

TensorParallel::TensorParallel(nn::Module& model, const TensorPlan& plan, ProcessGroup& group) : group_(group) {
  check(model, plan, group.size());
  align_ranks(group, model);
  const bool divides_positions = std::ranges::count(plan, TensorStyle::own_positions, &TensorRule::style) > 0;
  if (divides_positions) undivided_ = Undivided::positions;
  for (const TensorRule& rule : plan) apply(model, rule);
}

void TensorParallel::complete_gradients() {
  for (Variable& parameter : partial_) {
    if (!parameter.grad().defined()) continue;
    Tensor gradient = parameter.grad();
    gradient.copy_from(group_.sum(gradient));
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
      divide(model, rule.module + ".weight", {weight_dim(whole, rule.style), rule.pieces});
      if (whole.bias().defined()) divide(model, rule.module + ".bias", {0, rule.pieces});
      return module.set_substitute(std::make_unique<ColumnParallelLinear>(whole, group_, undivided_));
    }
    case TensorStyle::row: {
      auto& whole = layer(model, rule);
      divide(model, rule.module + ".weight", {weight_dim(whole, rule.style)});
      if (undivided_ == Undivided::positions && whole.bias().defined() && whole.bias().requires_grad())
        partial_.push_back(whole.bias());
      return module.set_substitute(std::make_unique<RowParallelLinear>(whole, group_, undivided_));
    }
    case TensorStyle::vocabulary_embedding:
      divide(model, rule.module + ".weight", {});
      return module.set_substitute(std::make_unique<VocabularyParallelEmbedding>(module, group_, undivided_));
    case TensorStyle::vocabulary_head:
      divides_scores_ = true;
      return module.set_substitute(std::make_unique<VocabularyParallelHead>(module, group_, undivided_));
    case TensorStyle::dropout:
      return as<nn::Dropout>(model, rule, "dropout").set_part(group_.rank(), group_.size());
    case TensorStyle::own_positions:
      return module.set_call_hook(std::make_unique<OwnPositions>(group_));
    case TensorStyle::partial_gradients:
      for (const auto& [name, parameter] : module.named_parameters())
        if (parameter.requires_grad()) partial_.push_back(parameter);
      return;
  }
}

// In place, so that all modules that have the parameter see it.
void TensorParallel::divide(nn::Module& model, const std::string& parameter, Slicing slicing) {
  Variable variable = model.parameter(parameter);
  variable.set_value(part_of(variable.value(), slicing, group_.rank(), group_.size()));
  slicings_.emplace(parameter, slicing);
}

// Of a parameter, or of what an optimizer has of its shape.
const Slicing* TensorParallel::slicing_of(const std::string& name, const Tensor& tensor) const {
  auto found = slicings_.find(name);
  if (found == slicings_.end()) found = slicings_.find(name.substr(0, name.rfind('.')));
  return found == slicings_.end() || tensor.dim() == 0 ? nullptr : &found->second;
}

Tensor TensorParallel::whole(const std::string& parameter, const Tensor& own) const {
  const Slicing* slicing = slicing_of(parameter, own);
  if (!slicing) return own;
  const int ranks = group_.size();
  Tensor all = Tensor::empty({ranks * own.numel()}, own.dtype());
  group_.group().allgather(span_of_tensor(own), span_of_tensor(all), {.blocking = true});
  Tensor result = Tensor::empty(whole_shape(own.shape(), *slicing, ranks), own.dtype());
  for (int rank = 0; rank < ranks; ++rank)
    put_part(all.slice(0, rank * own.numel(), own.numel()).reshape(own.shape()), *slicing, rank, ranks, result);
  return result;
}

optim::NamedTensors TensorParallel::whole_like(const optim::NamedTensors& own) const {
  optim::NamedTensors whole;
  if (group_.rank() != 0) return whole;
  for (const auto& [name, tensor] : own) {
    const Slicing* slicing = slicing_of(name, tensor);
    whole.emplace_back(
        name, slicing ? Tensor::zeros(whole_shape(tensor.shape(), *slicing, group_.size()), tensor.dtype()) : tensor);
  }
  return whole;
}

optim::NamedTensors TensorParallel::gather(const optim::NamedTensors& own) const {
  optim::NamedTensors whole = whole_like(own);
  const int ranks = group_.size();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, part] = own[i];
    const Slicing* slicing = slicing_of(name, part);
    if (!slicing) continue;
    Tensor all = group_.rank() == 0 ? Tensor::empty({ranks * part.numel()}, part.dtype()) : Tensor();
    const Span to = all.defined() ? span_of_tensor(all) : Span{.dtype = part.dtype()};
    group_.group().gather(span_of_tensor(part), to, 0, {.blocking = true});
    if (!all.defined()) continue;
    for (int rank = 0; rank < ranks; ++rank)
      put_part(all.slice(0, rank * part.numel(), part.numel()).reshape(part.shape()), *slicing, rank, ranks,
               whole[i].second);
  }
  return whole;
}

void TensorParallel::scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const {
  const int ranks = group_.size();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, part] = own[i];
    const Slicing* slicing = slicing_of(name, part);
    if (!slicing) {
      // A collected state is in memory of its own.
      if (group_.rank() == 0 && whole[i].second.raw() != part.raw()) Tensor(part).copy_from(whole[i].second);
      group_.group().broadcast(span_of_tensor(part), 0, {.blocking = true});
    } else if (group_.rank() == 0) {
      Tensor all = Tensor::empty({ranks * part.numel()}, part.dtype());
      for (int rank = 0; rank < ranks; ++rank)
        all.slice(0, rank * part.numel(), part.numel())
            .copy_from(part_of(whole[i].second, *slicing, rank, ranks).reshape({part.numel()}));
      group_.group().scatter(span_of_tensor(all), span_of_tensor(part), 0, {.blocking = true});
    } else {
      group_.group().scatter(Span{.dtype = part.dtype()}, span_of_tensor(part), 0, {.blocking = true});
    }
    part.storage()->bump_version();
  }
}

}  // namespace ddprun
