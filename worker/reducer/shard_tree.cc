#include "ddprun/worker/reducer/shard_tree.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

bool are_siblings(const Subtree& left, const Subtree& right) {
  return left.size == right.size && left.begin + left.size == right.begin && left.begin % (2 * left.size) == 0;
}

void add_to(float* sum, const float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace

ShardRange shards_of_rank(int shards, int rank, int ranks) {
  const auto begin_of = [&](int r) { return static_cast<int>(std::int64_t{shards} * r / ranks); };
  return {begin_of(rank), begin_of(rank + 1)};
}

ShardRange below(ShardRange range, int shards) {
  return {std::min(range.begin, shards), std::min(range.end, shards)};
}

std::vector<Subtree> subtrees_of(ShardRange range) {
  std::vector<Subtree> subtrees;
  for (int shard = range.begin; shard < range.end; ++shard) {
    subtrees.push_back({.begin = shard, .size = 1});
    while (subtrees.size() > 1 && are_siblings(subtrees.end()[-2], subtrees.back())) {
      subtrees.pop_back();
      subtrees.back().size *= 2;
    }
  }
  return subtrees;
}

// What is left once all siblings are added are subtrees of falling sizes, the last ones of nodes that have no right
// child: each is added to the one before it.
float* add_along_tree(std::span<const SubtreeSum> sums, std::size_t count) {
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

void ShardSums::clear() {
  for (auto& entry : entries_) free_.push_back(std::move(entry.values));
  entries_.clear();
}

void ShardSums::add(int shard, std::span<const float> gradient) {
  const Subtree leaf{.begin = shard, .size = 1};
  if (entries_.empty() || !are_siblings(entries_.back().subtree, leaf)) return push(shard, gradient);
  add_to(entries_.back().values.data(), gradient.data(), gradient.size());
  entries_.back().subtree.size *= 2;
  while (entries_.size() > 1 && are_siblings(entries_.end()[-2].subtree, entries_.back().subtree)) merge_last();
}

void ShardSums::push(int shard, std::span<const float> gradient) {
  std::vector<float> values;
  if (!free_.empty()) {
    values = std::move(free_.back());
    free_.pop_back();
  }
  values.assign(gradient.begin(), gradient.end());
  entries_.push_back({.subtree = {.begin = shard, .size = 1}, .values = std::move(values)});
}

void ShardSums::merge_last() {
  auto last = std::move(entries_.back().values);
  entries_.pop_back();
  add_to(entries_.back().values.data(), last.data(), last.size());
  entries_.back().subtree.size *= 2;
  free_.push_back(std::move(last));
}

std::vector<SubtreeSum> ShardSums::sums() {
  std::vector<SubtreeSum> all;
  for (auto& entry : entries_) all.push_back({.subtree = entry.subtree, .values = entry.values.data()});
  return all;
}

}  // namespace ddprun
