#pragma once

#include <functional>
#include <memory>

#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/group_options.h"

namespace ddprun::comm {

// Which device a rank uses. Asked as the group comes together, so that the others are told when it throws.
using ChooseDevice = std::function<int()>;

// The collectives of NCCL over memory of one device, on a stream of their own, and channels (channels.h) for sends and
// receives; all of it behind what the default stream was given before.
std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options, ChooseDevice choose_device);

}  // namespace ddprun::comm
