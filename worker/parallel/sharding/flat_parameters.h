#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"
#include "worker/reducer/bucketing.h"
#include "worker/reducer/shards.h"

namespace ddprun {

// Parameters in the memory of buckets: a parameter lies at the same place of its bucket as its gradient in the
// reducer's. So a range of a bucket is gathered from all ranks in place.
//
// Ownership: the groups outlive this object; the memory lives as long as it or a parameter in it.
// Threads: those of the parameters.
// Errors: those of the groups: what allocate_on() throws from the constructor, their failure from gather().
class FlatParameters {
 public:
  // Moves the values of the parameters into buckets; their gradients are dropped. groups: by bucket, that whose ranks
  // shard it, in whose memory it lies.
  FlatParameters(std::vector<ProcessGroup*> groups, std::vector<std::pair<std::string, Variable>> parameters,
                 std::vector<Bucket> buckets);

  // Returns by bucket the elements that belong to this rank (shards.h), as one dimension.
  std::vector<Tensor> parts() const;
  // Copies the parts of the ranks of each group to all of them. Collective.
  void gather();
  // Returns the memory of a bucket, padding included.
  Span memory(std::size_t bucket) const;
  // Returns some elements of a bucket, as one dimension. The tensor keeps the memory alive.
  Tensor part(std::size_t bucket, const Shard& elements) const;

 private:
  std::vector<ProcessGroup*> groups_;  // by bucket
  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<std::shared_ptr<RegisteredBuffer>> memory_;  // by bucket
};

}  // namespace ddprun
