#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// The collectives of NCCL over memory of one device: that which is current where this is called. They run on a stream
// of their own, behind what the default stream was given before.
std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options);

// Throws Errc::unsupported for what NCCL has no form of.
void expect_supported(const Operation& operation);

}  // namespace ddprun::comm
