#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun {

enum class IntegerForm {
  bits8,          // 8 bits, with a scale for a rank's part of a bucket
  bits8_channel,  // for each channel in it, which is a row of a parameter (all of one with fewer than two dimensions)
  bits4,          // 4 bits, with a scale for each 128 elements, and error feedback
  bits1,          // signs, with a scale for each 256 elements, and error feedback
};

// Averages with integers on the wire: each rank gets its part of the bucket from all ranks (all_to_all), sums it in
// float32 in rank order, rounds the average again, and gives it to all (allgather). So no sum overflows, and every rank
// has the same bits.
//
// Error feedback: what rounding takes from a rank's gradient, and from the average that it rounds for all, is added to
// its next gradient (Seide et al. 2014; Tang et al., "DoubleSqueeze", 2019).
//
// State: with error feedback the error of each bucket.
std::unique_ptr<CommHook> make_integer_hook(IntegerForm form, ProcessGroup& group);

}  // namespace ddprun
