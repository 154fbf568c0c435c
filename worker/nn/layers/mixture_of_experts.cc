#include "worker/nn/layers/mixture_of_experts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/indexing.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/autograd/ops/shape.h"
#include "worker/nn/layers/initial.h"
#include "worker/nn/loss_factor_scope.h"

namespace ddprun::nn {
namespace {

void check(const MixtureOfExpertsOptions& o) {
  if (o.per_token >= 1 && o.per_token <= o.experts) return;
  throw make_error(Errc::usage, "mixture of experts: {} experts a token, of {}", o.per_token, o.experts);
}

// Returns the value, from which the backward pass goes on to the loss as well, with the gradient factor.
Variable with_loss(const Variable& value, const Variable& loss, double factor) {
  const autograd::Function operation("with_loss", {value, loss});
  return operation.record(value.value(), {},
                          [factor, dtype = loss.dtype(), device = loss.value().device()](autograd::Backward& pass) {
                            if (pass.wants(0)) pass.add(0, pass.grad());
                            if (pass.wants(1)) pass.add(1, Tensor::full({}, factor, dtype, device));
                          });
}

// Returns the sum for tokens (rows, width) of the experts' results times a weight for each choice (rows, per_token).
Variable weighted_sum(const Variable& results, const Routing& routing, const Variable& weights) {
  const std::int64_t tokens = weights.shape()[0], choices = weights.shape()[1];
  const Variable chosen = reshape(index_select(results, routing.rows), {tokens, choices, results.shape()[1]});
  return sum(mul(chosen, reshape(cast(weights, results.dtype()), {tokens, choices, 1})), {1});
}

// Returns (tokens, per_token): weights that add up to 1 for each token before any is dropped; a sole one is not scaled.
Variable weights_of(const Variable& probabilities, const Routing& routing, std::int64_t per_token) {
  Variable weights = gather(probabilities, 1, routing.experts);
  if (per_token > 1) weights = div(weights, sum(weights, {1}, true));
  return routing.dropped > 0 ? mul(weights, Variable(routing.kept)) : weights;
}

void add(ExpertCounts& sum, const ExpertCounts& counts) {
  sum.resize(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) sum[i] += counts[i];
}

// Returns the choices by expert of a pass that counts, and last those that were dropped.
ExpertCounts load_numbers(const Routing& routing) {
  ExpertCounts numbers = routing.chosen;
  numbers.push_back(routing.dropped);
  if (LossFactorScope::current() == 0) std::ranges::fill(numbers, 0);
  return numbers;
}

}  // namespace

ExpertLinear::ExpertLinear(std::int64_t experts, std::int64_t in, std::int64_t out, double deviation, bool bias,
                           Generator& generator)
    : weight_(register_parameter("weight", normal({experts, in, out}, deviation, generator))) {
  if (bias) bias_ = register_parameter("bias", Tensor::zeros({experts, out}));
}

Variable ExpertLinear::apply(const Variable& rows, const ExpertCounts& counts) const {
  return grouped_mm(rows, counts, weight_, bias_);
}

Variable ExpertLinear::multiply(const Variable& rows, const ExpertCounts& counts) const {
  return grouped_mm(rows, counts, weight_, {});
}

Variable ExpertLinear::add_bias(const Variable& results, const ExpertCounts& counts) const {
  if (!bias_.defined()) return results;
  std::vector<std::int64_t> experts;  // by row
  for (std::size_t expert = 0; expert < counts.size(); ++expert)
    experts.insert(experts.end(), static_cast<std::size_t>(counts[expert]), static_cast<std::int64_t>(expert));
  const Tensor indices = Tensor::from(experts, {std::ssize(experts)}).to(results.device());
  return ddprun::add(results, cast(index_select(bias_, indices), results.dtype()));
}

Router::Router(std::int64_t width, std::int64_t experts, double deviation, Generator& generator)
    : weight_(register_parameter("weight", normal({experts, width}, deviation, generator))) {}

// The router computes in float32: in 16 bits probabilities of neighbours would often be equal.
Variable Router::forward(const Variable& tokens) {
  const autograd::AutocastScope precise(DType::float32);
  return linear(cast(tokens, weight_.dtype()), weight_);
}

MixtureOfExperts::MixtureOfExperts(const MixtureOfExpertsOptions& o, Generator& generator)
    : options_((check(o), o)),
      router_(register_module("router", std::make_unique<Router>(o.width, o.experts, o.deviation, generator))),
      c_fc_(register_module(
          "c_fc", std::make_unique<ExpertLinear>(o.experts, o.width, o.hidden, o.deviation, o.bias, generator))),
      c_proj_(register_module("c_proj", std::make_unique<ExpertLinear>(o.experts, o.hidden, o.width, o.result_deviation,
                                                                       o.bias, generator))),
      dropout_(register_module("dropout", make_dropout(o.dropout, generator))) {}

ExpertLoad MixtureOfExperts::take_load() {
  return std::exchange(load_, {});
}

Variable MixtureOfExperts::forward(const Variable& input) {
  return dropout_(slices_ ? slices_->own(mix(slices_->whole(input))) : mix(input));
}

Variable MixtureOfExperts::mix(const Variable& input) {
  const Variable tokens = reshape(input, {-1, options_.width});
  const Variable logits = router_(tokens), probabilities = softmax(logits);
  const auto capacity =
      expert_capacity(options_.capacity_factor, tokens.shape()[0], options_.per_token, options_.experts);
  const Routing routing = route(probabilities.value(), options_.per_token, capacity);
  const auto [results, sums] =
      run(index_select(tokens, routing.tokens), routing.counts, training() ? load_numbers(routing) : ExpertCounts());
  Variable sum = weighted_sum(results, routing, weights_of(probabilities, routing, options_.per_token));
  if (training()) {
    if (!autograd::is_recomputing()) record_load(sums);
    const ExpertCounts chosen(sums.begin(), sums.end() - 1);
    if (grad_enabled()) sum = with_loss(sum, losses(logits, probabilities, chosen), LossFactorScope::current());
  }
  return reshape(sum, input.shape());
}

Variable MixtureOfExperts::compute(const Variable& rows, const ExpertCounts& counts) {
  if (!slices_) return c_proj_.apply(gelu_tanh(c_fc_.apply(rows, counts)), counts);
  const Variable hidden = gelu_tanh(c_fc_.apply(slices_->enter(rows), counts));
  return c_proj_.add_bias(slices_->leave(c_proj_.multiply(hidden, counts)), counts);
}

ExpertExchange::Results MixtureOfExperts::run(const Variable& rows, const ExpertCounts& counts,
                                              const ExpertCounts& numbers) {
  const auto own = [this](const Variable& of, const ExpertCounts& by) { return compute(of, by); };
  if (exchange_) return exchange_->run(rows, counts, numbers, own);
  return {own(rows, counts), numbers};
}

// Takes the sums of load_numbers() over all processes that route together.
void MixtureOfExperts::record_load(const ExpertCounts& sums) {
  load_.dropped += sums.back();
  add(load_.chosen, {sums.begin(), sums.end() - 1});
}

Variable MixtureOfExperts::losses(const Variable& logits, const Variable& probabilities,
                                  const ExpertCounts& chosen) const {
  const auto all =
      static_cast<double>(std::max(std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0}), std::int64_t{1}));
  std::vector<double> shares;
  for (const std::int64_t count : chosen) shares.push_back(static_cast<double>(count) / all);
  const Variable share(
      Tensor::from(shares, {options_.experts}).to(probabilities.dtype()).to(probabilities.value().device()));
  const double experts = static_cast<double>(options_.experts);
  Variable loss = mul(ddprun::sum(mul(mean(probabilities, {0}), share)), experts * options_.load_balancing_loss);
  if (options_.router_z_loss > 0) {
    const Variable log_sums = sub(select(logits, 1, 0), select(log_softmax(logits), 1, 0));
    loss = ddprun::add(loss, mul(mean(mul(log_sums, log_sums)), options_.router_z_loss));
  }
  return loss;
}

}  // namespace ddprun::nn
