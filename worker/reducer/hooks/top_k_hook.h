#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun {

// Averages only the elements of largest magnitude: each rank sends a fraction of each bucket, as places and float32
// values, to all (allgather), and adds what it left out to its next gradient (error feedback; Stich, Cordonnier, Jaggi,
// "Sparsified SGD with Memory", 2018). Each element's average is the sum of those that ranks sent, in rank order,
// divided by the number of all ranks.
//
// State: the error of each bucket.
// fraction: above 0, at most 1; at least one element of each bucket is sent. Throws Errc::usage for another one.
std::unique_ptr<CommHook> make_top_k_hook(double fraction, ProcessGroup& group);

}  // namespace ddprun
