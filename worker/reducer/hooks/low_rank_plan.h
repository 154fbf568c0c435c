#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/reducer/comm_hook.h"
#include "worker/reducer/hooks/power_sgd_hook.h"

namespace ddprun {

// A part of a bucket that is sent as two factors.
struct LowRankMatrix {
  std::string name;
  std::size_t offset = 0;  // elements from the start of the bucket
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
  std::size_t left = 0;   // where its P begins in the bucket's first message, and
  std::size_t right = 0;  // its Q in the second
};

// A part of a bucket that is sent as it is.
struct UncompressedSlice {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;
  std::size_t count = 0;
  std::size_t place = 0;  // its beginning in the first message
};

// The parts of a bucket that PowerSGD compresses, and their places in its two messages: the P of all matrices and what
// is not compressed; then their Q.
struct LowRankPlan {
  std::vector<LowRankMatrix> matrices;
  std::vector<UncompressedSlice> rest;
  std::size_t elements = 0;  // the bucket's, as far as matrices reach
  std::size_t first_message = 0;
  std::size_t second_message = 0;
};

LowRankPlan plan_low_rank(PowerSgdForm form, const PowerSgdOptions& options, const GradBucket& bucket);

}  // namespace ddprun
