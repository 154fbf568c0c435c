#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// The collectives of NCCL over memory of one device, on a stream of their own, and channels (channels.h) for sends and
// receives; all of it behind what the default stream was given before.
std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options, int device);

}  // namespace ddprun::comm
