#pragma once

#include <cstddef>
#include <cstdint>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/tensor/memory_owner.h"

namespace ddprun {

// ProcessGroup::allocate_on() for the caller, counted as the owner's for as long as the memory lives. Throws
// OutOfDeviceMemory where the device has not enough.
RegisteredBuffer owned_buffer(ProcessGroup& group, std::int32_t device, std::size_t bytes, MemoryOwner owner);

}  // namespace ddprun
