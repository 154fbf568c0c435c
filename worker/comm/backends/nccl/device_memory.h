#pragma once

#include <cstddef>

namespace ddprun::comm {

// Memory of a device, which is current. Where there is not enough, what the pool of asynchronous allocations keeps for
// tensors is given back to the driver first. Throws MemoryExhausted where that is not enough either.
class DeviceMemory {
 public:
  DeviceMemory(int device, std::size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Allocates in the same way by ncclMemAlloc, whose memory a communicator can register.
void* allocate_for_nccl(int device, std::size_t bytes);

}  // namespace ddprun::comm
