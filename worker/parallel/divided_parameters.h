#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/reducer/bucketing.h"

namespace ddprun {

// Parameters, and the buckets of their gradients.
struct GradientBuckets {
  std::vector<std::pair<std::string, Variable>> parameters;
  std::vector<Bucket> buckets;
};

// Parameters whose buckets are divided among ranks (shards.h), and this rank's part of each. These are handles: the
// memory is that of the tensors.
//
// A value. Threads: those of the tensors. Errors: none.
struct DividedParameters {
  std::vector<std::pair<std::string, Variable>> parameters;
  std::vector<Bucket> buckets;
  // This rank's elements by bucket, one dimension each.
  std::vector<Tensor> values;
  std::vector<Tensor> gradients;
};

}  // namespace ddprun
