#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/comm/process_group.h"
#include "worker/tensor/memory_owner.h"

namespace ddprun {

// Calls ProcessGroup::allocate_on() for the caller; the memory counts as the owner's for as long as it lives. Throws
// OutOfDeviceMemory if the device has not enough.
RegisteredBuffer owned_buffer(ProcessGroup& group, std::int32_t device, std::size_t bytes, MemoryOwner owner);

}  // namespace ddprun
