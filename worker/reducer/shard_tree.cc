#include "worker/reducer/shard_tree.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace ddprun {
namespace {

void append(std::vector<Subtree>& subtrees, int shard) {
  subtrees.push_back({.begin = shard, .size = 1});
  while (subtrees.size() > 1 && are_siblings(subtrees.end()[-2], subtrees.back())) {
    subtrees.pop_back();
    subtrees.back().size *= 2;
  }
}

// Marks the shards of a subtree. Returns false, and marks none, if one of them has no samples or is marked.
bool mark(const Subtree& subtree, std::vector<bool>& marked) {
  const auto begin = static_cast<std::size_t>(subtree.begin), end = begin + static_cast<std::size_t>(subtree.size);
  if (end > marked.size()) return false;
  for (auto shard = begin; shard < end; ++shard)
    if (marked[shard]) return false;
  for (auto shard = begin; shard < end; ++shard) marked[shard] = true;
  return true;
}

std::vector<ShardDuty> divide_evenly(int shards, int filled, int ranks) {
  std::vector<ShardDuty> duties(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto range = shards_of_rank(shards, rank, ranks);
    for (int shard = range.begin; shard < std::min(range.end, filled); ++shard)
      duties[static_cast<std::size_t>(rank)].shards.push_back(shard);
  }
  return duties;
}

// Returns how many more shards each rank gets, of so many: the next one is for a rank with fewest.
std::vector<std::size_t> levelling(std::vector<int> counts, std::size_t shards) {
  std::vector<std::size_t> more(counts.size());
  for (; shards > 0; --shards) {
    const auto least = std::ranges::min_element(counts);
    ++*least;
    ++more[static_cast<std::size_t>(least - counts.begin())];
  }
  return more;
}

// Gives ranks, those with fewest first, ranges of the missing shards: neighbours make up fewer subtrees.
void deal(const std::vector<int>& missing, const std::vector<int>& counts, std::vector<ShardDuty>& duties) {
  const auto more = levelling(counts, missing.size());
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t rank) { return counts[rank]; });
  auto next = missing.begin();
  for (const auto rank : order) {
    const auto end = next + static_cast<std::ptrdiff_t>(more[rank]);
    duties[rank].shards.assign(next, end);
    next = end;
  }
}

}  // namespace

bool are_siblings(const Subtree& left, const Subtree& right) {
  return left.size == right.size && left.begin + left.size == right.begin && left.begin % (2 * left.size) == 0;
}

ShardRange shards_of_rank(int shards, int rank, int ranks) {
  const auto begin_of = [&](int r) { return static_cast<int>(std::int64_t{shards} * r / ranks); };
  return {begin_of(rank), begin_of(rank + 1)};
}

std::vector<ShardDuty> divide_shards(int shards, int filled, const std::vector<std::vector<Subtree>>& held) {
  if (std::ranges::all_of(held, [](const auto& sums) { return sums.empty(); }))
    return divide_evenly(shards, filled, static_cast<int>(held.size()));
  std::vector<ShardDuty> duties(held.size());
  std::vector<bool> done(static_cast<std::size_t>(filled));
  std::vector<int> counts(held.size());
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    for (const auto& subtree : held[rank]) {
      if (!mark(subtree, done)) continue;
      duties[rank].held.push_back(subtree);
      counts[rank] += subtree.size;
    }
  }
  std::vector<int> missing;
  for (int shard = 0; shard < filled; ++shard)
    if (!done[static_cast<std::size_t>(shard)]) missing.push_back(shard);
  deal(missing, counts, duties);
  return duties;
}

std::vector<Subtree> subtrees_of(const ShardDuty& duty) {
  auto subtrees = duty.held;
  for (const int shard : duty.shards) append(subtrees, shard);
  return subtrees;
}

// Once all siblings are added, subtrees of falling sizes are left, the last ones of nodes that have no right
// child: each is added to the one before it.
float* add_along_tree(std::vector<SubtreeSum> sums, std::size_t count) {
  std::ranges::sort(sums, {}, [](const SubtreeSum& sum) { return sum.subtree.begin; });
  std::vector<SubtreeSum> open;
  const auto add_last = [&] {
    const float* last = open.back().values;
    open.pop_back();
    add_to(open.back().values, last, count);
    open.back().subtree.size *= 2;
  };
  for (const auto& sum : sums) {
    open.push_back(sum);
    while (open.size() > 1 && are_siblings(open.end()[-2].subtree, open.back().subtree)) add_last();
  }
  while (open.size() > 1) add_last();
  return open.front().values;
}

void add_to(float* sum, const float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace ddprun
