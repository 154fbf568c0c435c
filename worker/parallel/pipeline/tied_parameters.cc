#include "ddprun/worker/parallel/pipeline/tied_parameters.h"

#include <algorithm>
#include <map>
#include <set>

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::pipeline {
namespace {

Span span_of(Tensor& tensor) {
  return {tensor.raw(), static_cast<std::size_t>(tensor.numel()), tensor.dtype()};
}

Tensor gradient_of(const Variable& parameter) {
  return parameter.grad().defined() ? parameter.grad() : Tensor::zeros_like(parameter.value());
}

}  // namespace

TiedParameters::TiedParameters(const std::vector<Stage>& stages, const Schedule& schedule, ProcessGroup& group)
    : group_(group) {
  std::map<std::string, std::set<int>> ranks;
  for (const Stage& stage : stages)
    for (const auto& [name, parameter] : stage.parameters)
      if (parameter.requires_grad()) ranks[name].insert(schedule.rank_of(stage.number));
  for (const auto& [name, all] : ranks) {
    if (all.size() < 2 || !all.contains(group.rank())) continue;
    for (const Stage& stage : stages)
      for (const auto& [own, parameter] : stage.parameters)
        if (own == name && (tied_.empty() || !tied_.back().parameter.is(parameter)))
          tied_.push_back({parameter, {all.begin(), all.end()}});
  }
}

// The first rank adds, in the order of ranks, and sends the sum back: the same bits for all.
void TiedParameters::sum_gradients() const {
  constexpr int tag = 0;  // messages of stages begin with a layout, which no stage 0 receives
  for (const Tied& tied : tied_) {
    Tensor sum = gradient_of(tied.parameter).clone();
    if (group_.rank() == tied.ranks[0]) {
      Tensor other = Tensor::empty_like(sum);
      for (std::size_t i = 1; i < tied.ranks.size(); ++i) {
        group_.recv(span_of(other), tied.ranks[i], tag, {.blocking = true});
        kernels::add_in_place(sum, other);
      }
      for (std::size_t i = 1; i < tied.ranks.size(); ++i)
        group_.send(span_of(sum), tied.ranks[i], tag, {.blocking = true});
    } else {
      group_.send(span_of(sum), tied.ranks[0], tag, {.blocking = true});
      group_.recv(span_of(sum), tied.ranks[0], tag, {.blocking = true});
    }
    Tensor gradient = tied.parameter.grad();
    if (gradient.defined()) gradient.copy_from(sum);
  }
}

std::uint64_t TiedParameters::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const Tied& tied : tied_)
    bytes += tied.parameter.value().bytes() * (group_.rank() == tied.ranks[0] ? tied.ranks.size() - 1 : 1);
  return bytes;
}

bool TiedParameters::is_first(const Variable& parameter) const {
  return std::ranges::none_of(
      tied_, [&](const Tied& tied) { return tied.parameter.is(parameter) && tied.ranks[0] != group_.rank(); });
}

}  // namespace ddprun::pipeline
