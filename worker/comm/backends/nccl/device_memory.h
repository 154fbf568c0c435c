#pragma once

#include <cstddef>

namespace ddprun::comm {

// Memory of the current device. Where there is not enough, what the pool of asynchronous allocations keeps for tensors
// is given back to the driver first. Throws MemoryExhausted where that is not enough either.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

// The same with ncclMemAlloc, whose memory a communicator can register.
void* allocate_for_nccl(std::size_t bytes);

}  // namespace ddprun::comm
