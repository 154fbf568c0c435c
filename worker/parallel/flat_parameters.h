#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/reducer/bucketing.h"
#include "ddprun/worker/reducer/shards.h"

namespace ddprun {

// Parameters in the memory of buckets: a parameter lies in its bucket where its gradient lies in the reducer's. So a
// range of a bucket is gathered from all ranks in place.
//
// Ownership: the memory lives as long as this object or a parameter in it. Threads: as the parameters.
// Errors: those of the group: what allocate_on() throws from the constructor, its failure from gather().
class FlatParameters {
 public:
  // Moves the values of the parameters into buckets; their gradients are dropped. The memory is the group's.
  FlatParameters(ProcessGroup& group, std::vector<std::pair<std::string, Variable>> parameters,
                 std::vector<Bucket> buckets);

  // By bucket: the elements that belong to this rank (shards.h), as one dimension.
  std::vector<Tensor> parts(const ProcessGroup& group) const;
  // All ranks' parts to all ranks. Collective.
  void gather(ProcessGroup& group);
  // Of a bucket, padding included.
  Span memory(std::size_t bucket) const;
  // Some elements of a bucket, as one dimension. Keeps the memory.
  Tensor part(std::size_t bucket, const Shard& elements) const;

 private:
  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<std::shared_ptr<RegisteredBuffer>> memory_;  // by bucket
};

}  // namespace ddprun
