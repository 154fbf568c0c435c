#include "worker/profiler/overlap.h"

#include <algorithm>

namespace ddprun::profiler {
namespace {

using Steps = std::vector<ReducedStep>;

bool are_alike(const std::vector<Steps>& ranks) {
  if (ranks.empty() || ranks.front().empty()) return false;
  const std::size_t steps = ranks.front().size(), buckets = ranks.front().front().ready.size();
  const auto alike = [&](const ReducedStep& step) {
    return step.ready.size() == buckets && step.ended.size() == buckets;
  };
  return buckets > 0 && std::ranges::all_of(ranks, [&](const Steps& rank) {
           return rank.size() == steps && std::ranges::all_of(rank, alike);
         });
}

// Returns when the last rank had complete gradients, for each bucket.
std::vector<Time> ready_at_all(const std::vector<Steps>& ranks, std::size_t step) {
  std::vector<Time> ready = ranks.front()[step].ready;
  for (const Steps& rank : ranks)
    for (std::size_t b = 0; b < ready.size(); ++b) ready[b] = std::max(ready[b], rank[step].ready[b]);
  return ready;
}

// Shortens `least` to the durations of a step's reductions.
void record_durations(const std::vector<Time>& ready, const std::vector<Time>& ended, std::vector<Time>& least) {
  Time before{0};
  for (std::size_t b = 0; b < ready.size(); ++b) {
    least[b] = std::min(least[b], std::max(Time{0}, ended[b] - std::max(ready[b], before)));
    before = std::max(before, ended[b]);
  }
}

Time replayed_end(const std::vector<Time>& ready, const std::vector<Time>& durations) {
  Time end{0};
  for (std::size_t b = 0; b < ready.size(); ++b) end = std::max(end, ready[b]) + durations[b];
  return end;
}

// Returns the part of `all` that does not lie between the end of the computation and that of the last reduction.
Time beside(Time all, Time computed, Time end) {
  return std::clamp(all - (end - computed), Time{0}, all);
}

}  // namespace

std::optional<Overlap> overlap_of(const std::vector<Steps>& ranks, std::size_t rank) {
  if (!are_alike(ranks)) return std::nullopt;
  const Steps& own = ranks.at(rank);
  std::vector<std::vector<Time>> ready;
  std::vector<Time> least(own.front().ready.size(), Time::max());
  for (std::size_t s = 0; s < own.size(); ++s) {
    ready.push_back(ready_at_all(ranks, s));
    for (const Steps& each : ranks) record_durations(ready[s], each[s].ended, least);
  }
  Time all{0};
  for (const Time duration : least) all += duration;
  Overlap overlap;
  for (std::size_t s = 0; s < own.size(); ++s) {
    const Time computed = *std::ranges::max_element(ready[s]);
    overlap.communication += all;
    overlap.hideable += beside(all, computed, replayed_end(ready[s], least));
    overlap.hidden += beside(all, computed, *std::ranges::max_element(own[s].ended));
  }
  return overlap;
}

}  // namespace ddprun::profiler
