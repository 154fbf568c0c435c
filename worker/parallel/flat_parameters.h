#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/reducer/bucketing.h"

namespace ddprun {

// Parameters in the memory of buckets: a parameter lies in its bucket where its gradient lies in the reducer's. So a
// range of a bucket is gathered from all ranks in place.
//
// Ownership: the memory lives as long as this object or a parameter in it. Threads: as the parameters.
class FlatParameters {
 public:
  // Moves the values of the parameters into buckets; their gradients are dropped. The memory is the group's.
  FlatParameters(ProcessGroup& group, std::vector<std::pair<std::string, Variable>> parameters,
                 std::vector<Bucket> buckets);

  // By bucket: the elements that belong to this rank (shards.h), as one dimension.
  std::vector<Tensor> parts(const ProcessGroup& group) const;
  // All ranks' parts to all ranks. Collective.
  void gather(ProcessGroup& group);

 private:
  Span memory(std::size_t bucket) const;

  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<std::shared_ptr<RegisteredBuffer>> memory_;  // by bucket
};

}  // namespace ddprun
