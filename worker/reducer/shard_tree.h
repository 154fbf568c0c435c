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

struct ShardRange {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
};

// Returns the shards that a rank computes: as evenly as possible, in rank order. Some ranks have none if there are more
// ranks than shards.
ShardRange shards_of_rank(int shards, int rank, int ranks);

// Returns the part of a range that lies below `shards`.
ShardRange below(ShardRange range, int shards);

// Returns the fewest subtrees that make up a range, ascending.
std::vector<Subtree> subtrees_of(ShardRange range);

// The sum of the gradients of a subtree's shards.
struct SubtreeSum {
  Subtree subtree;
  float* values = nullptr;
};

// Adds the sums of all shards of a batch, each of so many values, along the tree. sums: of subtrees that make up the
// batch, ascending. Returns the memory of the first one, which has the whole sum then; the others' is overwritten, too.
// REQUIRES: there is one.
float* add_along_tree(std::span<const SubtreeSum> sums, std::size_t count);

// The sums of the shards that one rank has computed, for one bucket of gradients.
//
// Ownership: it owns the sums. Threads: one at a time. Errors: none.
class ShardSums {
 public:
  // Forgets all sums, but not their memory.
  void clear();
  // Adds the gradient of the shard that follows those before. REQUIRES: as many values each time.
  void add(int shard, std::span<const float> gradient);
  // Returns the sums: those of subtrees_of() of the shards that were added. Valid until the next call.
  std::vector<SubtreeSum> sums();

 private:
  struct Entry {
    Subtree subtree;
    std::vector<float> values;
  };
  void push(int shard, std::span<const float> gradient);
  void merge_last();

  std::vector<Entry> entries_;
  std::vector<std::vector<float>> free_;  // memory of earlier sums
};

}  // namespace ddprun
