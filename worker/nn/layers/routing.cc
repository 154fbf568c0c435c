#include "worker/nn/layers/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "worker/tensor/shape_only.h"

namespace ddprun::nn {
namespace {

// Returns (tokens, per_token): the experts of each token.
template <class T>
Tensor most_probable(const T* probabilities, std::int64_t tokens, std::int64_t experts, std::int64_t per_token) {
  Tensor chosen = Tensor::empty({tokens, per_token}, DType::int64);
  std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
  for (std::int64_t token = 0; token < tokens; ++token) {
    const T* of = probabilities + token * experts;
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::partial_sort(order.begin(), order.begin() + per_token, order.end(),
                      [of](std::int64_t a, std::int64_t b) { return of[a] != of[b] ? of[a] > of[b] : a < b; });
    std::copy_n(order.begin(), per_token, chosen.data<std::int64_t>() + token * per_token);
  }
  return chosen;
}

// Returns the same where probabilities have no values: all experts are chosen equally often, which training aims at.
Tensor each_in_turn(std::int64_t tokens, std::int64_t experts, std::int64_t per_token) {
  Tensor chosen = Tensor::empty({tokens, per_token}, DType::int64);
  for (std::int64_t i = 0; i < chosen.numel(); ++i) chosen.data<std::int64_t>()[i] = i % experts;
  return chosen;
}

// Sets counts, kept and dropped.
template <class T>
void keep_within(std::int64_t capacity, std::int64_t tokens, std::int64_t per_token, Routing& routing) {
  const auto* experts = routing.experts.data<std::int64_t>();
  T* kept = routing.kept.data<T>();
  for (std::int64_t choice = 0; choice < per_token; ++choice)
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int64_t at = token * per_token + choice;
      auto& count = routing.counts[static_cast<std::size_t>(experts[at])];
      const bool fits = capacity == 0 || count < capacity;
      kept[at] = fits ? T{1} : T{0};
      if (fits) ++count;
    }
  routing.dropped = tokens * per_token - std::accumulate(routing.counts.begin(), routing.counts.end(), std::int64_t{0});
}

// Sets tokens and rows from counts and kept.
template <class T>
void order_rows(std::int64_t tokens, std::int64_t per_token, Routing& routing) {
  std::vector<std::int64_t> next(routing.counts.size());  // the next row, by expert
  std::exclusive_scan(routing.counts.begin(), routing.counts.end(), next.begin(), std::int64_t{0});
  const auto* experts = routing.experts.data<std::int64_t>();
  const T* kept = routing.kept.data<T>();
  routing.tokens = Tensor::empty({tokens * per_token - routing.dropped}, DType::int64);
  routing.rows = Tensor::zeros({tokens * per_token}, DType::int64);
  for (std::int64_t at = 0; at < tokens * per_token; ++at) {
    if (kept[at] == 0) continue;
    const std::int64_t row = next[static_cast<std::size_t>(experts[at])]++;
    routing.tokens.data<std::int64_t>()[row] = at / per_token;
    routing.rows.data<std::int64_t>()[at] = row;
  }
}

template <class T>
Routing route_by(const Tensor& probabilities, std::int64_t per_token, std::int64_t capacity) {
  const std::int64_t tokens = probabilities.size(0), experts = probabilities.size(1);
  Routing routing{.experts = shapes_only() ? each_in_turn(tokens, experts, per_token)
                                           : most_probable(probabilities.data<T>(), tokens, experts, per_token)};
  routing.chosen.resize(static_cast<std::size_t>(experts));
  routing.counts.resize(static_cast<std::size_t>(experts));
  for (const auto expert :
       std::span(routing.experts.data<std::int64_t>(), static_cast<std::size_t>(tokens * per_token)))
    ++routing.chosen[static_cast<std::size_t>(expert)];
  routing.kept = Tensor::empty({tokens, per_token}, probabilities.dtype());
  keep_within<T>(capacity, tokens, per_token, routing);
  order_rows<T>(tokens, per_token, routing);
  return routing;
}

}  // namespace

Routing route(const Tensor& given, std::int64_t per_token, std::int64_t capacity) {
  const Tensor probabilities = given.to(Device{});
  Routing routing = probabilities.dtype() == DType::float64 ? route_by<double>(probabilities, per_token, capacity)
                                                            : route_by<float>(probabilities, per_token, capacity);
  for (Tensor* tensor : {&routing.experts, &routing.tokens, &routing.rows, &routing.kept})
    *tensor = tensor->to(given.device());
  return routing;
}

std::int64_t expert_capacity(double factor, std::int64_t tokens, std::int64_t per_token, std::int64_t experts) {
  return static_cast<std::int64_t>(
      std::ceil(factor * static_cast<double>(tokens * per_token) / static_cast<double>(experts)));
}

}  // namespace ddprun::nn
