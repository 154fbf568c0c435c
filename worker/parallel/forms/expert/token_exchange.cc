#include "worker/parallel/forms/expert/token_exchange.h"

#include <cstring>
#include <functional>
#include <numeric>

#include "worker/autograd/function.h"
#include "worker/parallel/group_tensors.h"
#include "worker/tensor/shape_only.h"

namespace ddprun {
namespace {

std::size_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

Counts times(const Counts& counts, std::size_t width) {
  Counts elements;
  for (const std::size_t count : counts) elements.push_back(count * width);
  return elements;
}

std::size_t row_bytes(const Tensor& rows) {
  return static_cast<std::size_t>(rows.size(1)) * size_of(rows.dtype());
}

// Sets own, places and received from routes.counts, which are by rank and expert.
void order_by_expert(ExpertRoutes& routes, std::size_t ranks, std::size_t experts) {
  routes.places.resize(routes.counts.size());
  routes.received.assign(ranks, 0);
  routes.own.assign(experts, 0);
  std::size_t next = 0;
  for (std::size_t expert = 0; expert < experts; ++expert)
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t at = rank * experts + expert;
      routes.places[at] = next;
      next += routes.counts[at];
      routes.received[rank] += routes.counts[at];
      routes.own[expert] += static_cast<std::int64_t>(routes.counts[at]);
    }
}

// Calls copy(place by expert, place by rank, bytes) for each run of rows.
template <class Copy>
void for_each_run(const ExpertRoutes& routes, std::size_t bytes_of_row, Copy copy) {
  if (shapes_only()) return;
  std::size_t by_rank = 0;
  for (std::size_t at = 0; at < routes.counts.size(); ++at) {
    const std::size_t bytes = routes.counts[at] * bytes_of_row;
    copy(routes.places[at] * bytes_of_row, by_rank, bytes);
    by_rank += bytes;
  }
}

using Move = Tensor (*)(const Tensor&, const ExpertRoutes&, CountedGroup&);

// A leaf that requires a gradient makes the backward pass communicate at a rank whose rows require none.
Variable moved(const char* name, const Variable& rows, const ExpertRoutes& routes, CountedGroup& group, Move forth,
               Move back) {
  const autograd::Function operation(name, {rows, Variable(Tensor::zeros({1}), true)});
  return operation.record(forth(rows.value(), routes, group), {}, [&group, routes, back](autograd::Backward& pass) {
    Tensor gradient = back(pass.grad(), routes, group);
    if (pass.wants(0)) pass.add(0, std::move(gradient));
  });
}

Tensor exchange(const Tensor& rows, const Counts& sent, const Counts& received, CountedGroup& group) {
  const auto width = static_cast<std::size_t>(rows.size(1));
  Tensor result = Tensor::empty({static_cast<std::int64_t>(sum_of(received)), rows.size(1)}, rows.dtype());
  group.run((sum_of(sent) - sent[static_cast<std::size_t>(group.rank())]) * row_bytes(rows), [&] {
    group.group().all_to_allv(span_of_tensor(rows), times(sent, width), span_of_tensor(result), times(received, width),
                              {.blocking = true});
  });
  return result;
}

}  // namespace

nn::ExpertCounts exchange_counts(const nn::ExpertCounts& counts, CountedGroup& group) {
  const std::size_t own = counts.size() / static_cast<std::size_t>(group.size());
  nn::ExpertCounts sent(counts), received(counts.size());
  group.run((counts.size() - own) * sizeof(std::int64_t),
            [&] { group.group().all_to_all(span_of(sent), span_of(received), {.blocking = true}); });
  return received;
}

ExpertRoutes routes_of(const nn::ExpertCounts& counts, const nn::ExpertCounts& received, int group_size) {
  const auto ranks = static_cast<std::size_t>(group_size), experts = counts.size() / ranks;
  ExpertRoutes routes;
  for (const std::int64_t count : received) routes.counts.push_back(static_cast<std::size_t>(count));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    routes.sent.push_back(static_cast<std::size_t>(
        std::accumulate(&counts[rank * experts], &counts[rank * experts] + experts, std::int64_t{0})));
  order_by_expert(routes, ranks, experts);
  return routes;
}

Tensor to_experts(const Tensor& given, const ExpertRoutes& routes, CountedGroup& group) {
  const Tensor by_rank = exchange(given.contiguous(), routes.sent, routes.received, group);
  Tensor by_expert = Tensor::empty_like(by_rank);
  const auto* from = static_cast<const std::byte*>(by_rank.raw());
  auto* to = static_cast<std::byte*>(by_expert.raw());
  for_each_run(routes, row_bytes(by_rank), [&](std::size_t expert_place, std::size_t rank_place, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to + expert_place, from + rank_place, bytes);
  });
  return by_expert;
}

Tensor from_experts(const Tensor& given, const ExpertRoutes& routes, CountedGroup& group) {
  const Tensor by_expert = given.contiguous();
  Tensor by_rank = Tensor::empty_like(by_expert);
  const auto* from = static_cast<const std::byte*>(by_expert.raw());
  auto* to = static_cast<std::byte*>(by_rank.raw());
  for_each_run(routes, row_bytes(by_rank), [&](std::size_t expert_place, std::size_t rank_place, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to + rank_place, from + expert_place, bytes);
  });
  return exchange(by_rank, routes.received, routes.sent, group);
}

Variable send_to_experts(const Variable& rows, const ExpertRoutes& routes, CountedGroup& group) {
  return moved("send_to_experts", rows, routes, group, to_experts, from_experts);
}

Variable return_from_experts(const Variable& rows, const ExpertRoutes& routes, CountedGroup& group) {
  return moved("return_from_experts", rows, routes, group, from_experts, to_experts);
}

}  // namespace ddprun
