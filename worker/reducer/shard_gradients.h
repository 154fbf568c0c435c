#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "worker/reducer/shard_tree.h"

namespace ddprun {

// The gradients that a rank has computed of the shards of a step, bucket by bucket, added along the tree as far as
// possible. It outlives the group of ranks that sums them: should that fail, the next group goes on with what its ranks
// have here, and computes only the rest.
//
// A shard counts once the gradients of all its buckets and its loss are there. The last one is kept apart from the
// sums, which thus stay whole if it does not become complete.
//
// Ownership: it owns the gradients. Threads: one at a time. Errors: none.
class ShardGradients {
 public:
  // Begins an attempt at a step, with so many buckets: forgets what is of another step, or incomplete.
  void begin_step(std::int64_t step, std::size_t buckets);
  // Returns the subtrees of which there are sums.
  std::vector<Subtree> held() const;
  // Forgets all sums but these.
  void keep(std::span<const Subtree> held);

  // Begins the next shard. REQUIRES: the one before is complete.
  void begin_shard(int shard);
  // REQUIRES: a shard has begun; as many values each time for the same bucket.
  void add_bucket(std::size_t bucket, std::span<const float> gradient);
  void add_loss(double loss);

  // Returns the bytes of its memory.
  std::size_t bytes() const;
  // Returns the sum of the losses of all shards that have one.
  double loss_sum() const;

  // Writes a range of a bucket's sums, one after the other, in the order of subtrees_of(). Returns the end of what was
  // written. REQUIRES: the last shard has this bucket.
  float* write_sums(std::size_t bucket, std::size_t begin, std::size_t count, float* to) const;

 private:
  using Buckets = std::vector<std::vector<float>>;
  struct Sum {
    Subtree subtree;
    Buckets buckets;
  };
  struct Shard {
    int number = 0;
    Buckets buckets;
    std::size_t added = 0;
    bool has_loss = false;
  };
  Buckets take_memory();
  void forget(Sum& sum);
  void settle_shard();
  std::size_t merged_with_shard() const;

  std::optional<std::int64_t> step_;
  std::size_t bucket_count_ = 0;
  std::vector<Sum> sums_;
  std::optional<Shard> shard_;    // the last one
  std::map<int, double> losses_;  // by shard
  std::vector<Buckets> free_;     // memory of earlier sums
};

}  // namespace ddprun
