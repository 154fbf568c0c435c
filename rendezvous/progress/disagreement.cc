#include "rendezvous/progress/disagreement.h"

#include <algorithm>

#include <fmt/format.h>

namespace ddprun {
namespace {

using Ranks = std::vector<std::size_t>;

// The most ranks of one call that a text names.
constexpr std::size_t most_named = 4;

std::string call_text(const std::vector<RankCall>& calls, const Ranks& ranks, std::size_t named) {
  named = std::min(named, ranks.size());
  std::string names;
  for (std::size_t i = 0; i < named; ++i) names += (names.empty() ? "" : ", ") + calls[ranks[i]].name;
  if (const auto others = ranks.size() - named; others > 0)
    names += fmt::format(" and {} other{}", others, others == 1 ? "" : "s");
  return fmt::format("{} call{} {}", names, ranks.size() == 1 ? "s" : "", describe(calls[ranks.front()].operation));
}

}  // namespace

std::vector<Ranks> group_calls(const std::vector<RankCall>& calls) {
  std::vector<Ranks> groups;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto same = std::ranges::find_if(
        groups, [&](const Ranks& each) { return agree(calls[each.front()].operation, calls[i].operation); });
    if (same != groups.end())
      same->push_back(i);
    else
      groups.push_back({i});
  }
  std::ranges::stable_sort(groups, {}, &Ranks::size);
  return groups;
}

bool odd_ranks_are_known(const std::vector<RankCall>& calls, std::size_t size) {
  const auto groups = group_calls(calls);
  return calls.size() >= size || (!groups.empty() && 2 * groups.back().size() > size);
}

std::string disagreement_text(std::uint64_t sequence, const std::vector<RankCall>& calls) {
  const auto groups = group_calls(calls);
  if (groups.size() < 2) return "";
  std::string text;
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) text += call_text(calls, groups[i], most_named) + "; ";
  return fmt::format("the ranks disagree on operation #{}: {}{}", sequence, text, call_text(calls, groups.back(), 1));
}

}  // namespace ddprun
