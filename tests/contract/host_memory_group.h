#pragma once

#include <memory>

#include "worker/comm/process_group.h"

namespace ddprun::contract {

// Presents a group for memory of a device as one for memory of the host, which the contract's clauses pass: each
// collective is executed on a copy in the device's memory, and has finished when its call returns.
std::unique_ptr<ProcessGroup> make_host_memory_group(std::unique_ptr<ProcessGroup> devices, int device);

}  // namespace ddprun::contract
