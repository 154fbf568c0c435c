#include "worker/profiler/slow_rank.h"

#include <algorithm>

#include <fmt/format.h>

namespace ddprun::profiler {
namespace {

constexpr double slower_by = 1.2;
constexpr Seconds least_excess{1e-3};
constexpr double least_excess_share = 0.1;  // the share of a step

struct Part {
  const char* name;
  Seconds StepTimes::*time;
};
constexpr Part parts[] = {{"data", &StepTimes::data},           {"upload", &StepTimes::upload},
                          {"forward", &StepTimes::forward},     {"backward", &StepTimes::backward},
                          {"optimizer", &StepTimes::optimizer}, {"communication", &StepTimes::start}};

template <class Time>
Seconds median_of_others(const std::vector<StepTimes>& ranks, std::size_t rank, Time time) {
  std::vector<Seconds> others;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (r != rank) others.push_back(time(ranks[r]));
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

double ms(Seconds time) {
  return 1e3 * time.count();
}

}  // namespace

std::optional<SlowRank> find_slow_rank(const std::vector<StepTimes>& ranks, int steps) {
  if (ranks.size() < 2) return std::nullopt;
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.own() < b.own(); });
  const auto rank = static_cast<std::size_t>(slowest - ranks.begin());
  SlowRank found{.rank = static_cast<int>(rank),
                 .own = slowest->own() / steps,
                 .others = median_of_others(ranks, rank, [](const auto& times) { return times.own(); }) / steps};
  const Seconds excess = found.own - found.others;
  if (found.own <= slower_by * found.others || excess < least_excess) return std::nullopt;
  if (excess < least_excess_share * slowest->total() / steps) return std::nullopt;
  Seconds most{0};
  for (const auto& [name, time] : parts) {
    const Seconds own = (*slowest).*time / steps;
    const Seconds others = median_of_others(ranks, rank, [&](const auto& times) { return times.*time; }) / steps;
    if (own - others <= most) continue;
    most = own - others;
    found.part = name;
    found.part_own = own;
    found.part_others = others;
  }
  return found;
}

std::string slow_rank_line(const SlowRank& s, const std::string& host) {
  return fmt::format(
      "rank {} on host {} is slower than the others: {:.1f} ms a step, theirs {:.1f} ms; {} takes {:.1f} ms, theirs "
      "{:.1f} ms",
      s.rank, host, ms(s.own), ms(s.others), s.part, ms(s.part_own), ms(s.part_others));
}

std::optional<SlowRank> SlowRankWatch::observe(const std::vector<StepTimes>& ranks, int steps) {
  const auto found = find_slow_rank(ranks, steps);
  const auto now = found ? std::pair(found->rank, std::string(found->part)) : std::pair(-1, std::string());
  in_a_row_ = now == last_ ? in_a_row_ + 1 : 1;
  last_ = now;
  if (!found || in_a_row_ < confirmations || !reported_.insert(now).second) return std::nullopt;
  return found;
}

}  // namespace ddprun::profiler
