#include "rendezvous/membership/rank_assignment.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace ddprun {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Removes the leading digits from text and returns them without leading zeros.
std::string_view take_number(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

int compare_numbers(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

// Gives candidate the rank if it is in range and free.
void grant(std::vector<int>& ranks, std::vector<bool>& taken, std::size_t candidate, const std::optional<int>& rank) {
  if (ranks[candidate] >= 0 || !rank || *rank < 0) return;
  const auto index = static_cast<std::size_t>(*rank);
  if (index >= taken.size() || taken[index]) return;
  taken[index] = true;
  ranks[candidate] = *rank;
}

// Orders nodes that lost a rank by that rank, before new nodes by host and arrival.
bool gets_free_rank_before(const RankCandidate& a, const RankCandidate& b) {
  if (a.previous_rank.has_value() != b.previous_rank.has_value()) return a.previous_rank.has_value();
  if (a.previous_rank && *a.previous_rank != *b.previous_rank) return *a.previous_rank < *b.previous_rank;
  const int hosts = natural_compare(a.host, b.host);
  return std::tie(hosts, a.arrival) < std::make_tuple(0, b.arrival);
}

}  // namespace

int natural_compare(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view number_a = take_number(a), number_b = take_number(b);
      if (const int order = compare_numbers(number_a, number_b)) return order;
      continue;
    }
    if (a.front() != b.front())
      return static_cast<unsigned char>(a.front()) < static_cast<unsigned char>(b.front()) ? -1 : 1;
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty() ? -1 : 1;
  return whole_a.compare(whole_b);  // "n01" and "n1" are different names
}

std::vector<int> assign_group_ranks(const std::vector<RankCandidate>& candidates) {
  std::vector<int> ranks(candidates.size(), -1);
  std::vector<bool> taken(candidates.size(), false);
  for (std::size_t i = 0; i < candidates.size(); ++i) grant(ranks, taken, i, candidates[i].previous_rank);
  for (std::size_t i = 0; i < candidates.size(); ++i) grant(ranks, taken, i, candidates[i].requested_rank);

  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (ranks[i] < 0) rest.push_back(i);
  std::stable_sort(rest.begin(), rest.end(),
                   [&](std::size_t a, std::size_t b) { return gets_free_rank_before(candidates[a], candidates[b]); });
  int free_rank = 0;
  for (const std::size_t candidate : rest) {
    while (taken[static_cast<std::size_t>(free_rank)]) ++free_rank;
    ranks[candidate] = free_rank++;
  }
  return ranks;
}

}  // namespace ddprun
