#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/reducer/bucketing.h"

namespace ddprun {

// Parameters whose buckets are divided among ranks (shards.h), and this rank's part of each. Handles: the memory is
// that of the tensors.
//
// A value. Threads: as the tensors. Errors: none.
struct DividedParameters {
  std::vector<std::pair<std::string, Variable>> parameters;
  std::vector<Bucket> buckets;
  // By bucket: this rank's elements, one dimension.
  std::vector<Tensor> values;
  std::vector<Tensor> gradients;
};

}  // namespace ddprun
