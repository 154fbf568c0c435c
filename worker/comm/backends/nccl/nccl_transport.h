#pragma once

#include <functional>
#include <memory>

#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"

namespace ddprun::comm {

// Returns the device that this rank uses. Called while the group forms, so that the other ranks learn when it throws.
using ChooseDevice = std::function<int()>;

// A transport over NCCL for memory of one device: collectives on a stream of their own, sends and receives through
// channels (channels.h). All begins after the work that the default stream had before.
// ranks_per_id: the number of its communicator's ranks that meet at each unique id, the same at all ranks.
std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options, ChooseDevice choose_device,
                                               int ranks_per_id = 128);

}  // namespace ddprun::comm
