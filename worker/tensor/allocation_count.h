#pragma once

#include <cstdint>

namespace ddprun {

// The memory that this thread has taken for tensors so far, freed or not, on all devices.
struct AllocationCount {
  std::int64_t allocations = 0;
  std::int64_t bytes = 0;
};
AllocationCount allocations_of_thread();

}  // namespace ddprun
