#pragma once

#include <cstddef>
#include <span>
#include <vector>

// The shards of a batch (train.shards), and the order in which their gradients are added: that of a binary tree whose
// leaves are the shards. Which rank has computed a shard changes no bit of the sum. The empty shards of a short batch
// are its last ones: its tree has fewer leaves. Pure functions.
namespace ddprun {

// A node of the tree: the shards from begin on, as many as size says, which is a power of two that divides begin.
struct Subtree {
  int begin = 0;
  int size = 1;
  bool operator==(const Subtree&) const = default;
};

// Returns whether two nodes are the children of one, in this order.
bool are_siblings(const Subtree& left, const Subtree& right);

struct ShardRange {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
};

// Returns the shards that a rank computes: as evenly as possible, in rank order. Some ranks have none if there are more
// ranks than shards.
ShardRange shards_of_rank(int shards, int rank, int ranks);

// A rank adds these to a step: the sums of subtrees that it has computed when the step failed in another group, and the
// shards that it has to compute.
struct ShardDuty {
  std::vector<Subtree> held;
  std::vector<int> shards;
};

// Divides the shards of a step, of which the first `filled` have samples, among ranks that hold these sums. Of a shard
// that several hold, the first one's counts. Without sums each rank has those of shards_of_rank(); otherwise those of
// which there is no sum are divided so that the ranks with fewest get as many as level them, each a range.
std::vector<ShardDuty> divide_shards(int shards, int filled, const std::vector<std::vector<Subtree>>& held);

// Returns the subtrees whose sums a rank has in the end: a shard is added to its sibling if that is the last one.
std::vector<Subtree> subtrees_of(const ShardDuty& duty);

// The sum of the gradients of a subtree's shards.
struct SubtreeSum {
  Subtree subtree;
  float* values = nullptr;
};

// Adds the sums of all shards of a batch, each of so many values, along the tree. sums: of subtrees that make up the
// batch, in any order. Returns the memory of the one with the first shard, which has the whole sum then; the others' is
// overwritten, too. REQUIRES: there is one.
float* add_along_tree(std::vector<SubtreeSum> sums, std::size_t count);

// Adds values to a sum.
void add_to(float* sum, const float* values, std::size_t count);

}  // namespace ddprun
