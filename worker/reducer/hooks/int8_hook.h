#pragma once

#include <memory>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/reducer/comm_hook.h"

namespace ddprun {

// What has a scale of its own: a rank's part of a bucket, or within it each channel, which is a row of a parameter (all
// of one with fewer than two dimensions).
enum class Int8Scale { bucket, channel };

// Averages with 8-bit integers on the wire: each rank gets its part of the bucket from all ranks (all_to_all), sums it
// in float32 in rank order, rounds the average to 8 bits again, and gives it to all (allgather). So no sum overflows,
// and every rank has the same bits.
std::unique_ptr<CommHook> make_int8_hook(Int8Scale scale, ProcessGroup& group);

}  // namespace ddprun
