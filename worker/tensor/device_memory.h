#pragma once

#include <cstddef>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/memory_owner.h"

namespace ddprun {

// What holds the memory of a CUDA device, in bytes. All of it is in one of these, so they add up to `total`.
struct DeviceMemoryUse {
  MemoryByOwner owners{};      // of this process
  std::size_t workspaces = 0;  // of operations that run
  std::size_t kept = 0;        // by the allocator of this process, for the next allocation
  std::size_t others = 0;      // other processes, and what CUDA and its libraries have taken in this one
  std::size_t free = 0;
  std::size_t total = 0;

  std::size_t of(MemoryOwner owner) const { return owners[static_cast<std::size_t>(owner)]; }
};

// At this moment. Thread-safe. REQUIRES: a CUDA device. Errors: those of the device.
DeviceMemoryUse device_memory_use(Device device);
// "optimizer state 3.2 GiB, parameters 1.6 GiB, kept for the next allocation 12.0 MiB", the most first.
std::string describe(const DeviceMemoryUse& use);

// A CUDA device has not enough memory, also without what the allocator had kept. what() says how much was wanted and
// for what, and what holds the device's memory. A value.
class OutOfDeviceMemory : public Error {
 public:
  // For the calling thread's MemoryScope, with what device_memory_use() gives now; throws as it does.
  OutOfDeviceMemory(Device device, std::size_t wanted);
  OutOfDeviceMemory(Device device, std::size_t wanted, MemoryOwner wanted_for, const DeviceMemoryUse& use);

  Device device() const { return device_; }
  std::size_t wanted() const { return wanted_; }
  MemoryOwner wanted_for() const { return wanted_for_; }
  // When the memory was wanted.
  const DeviceMemoryUse& use() const { return use_; }

 private:
  Device device_;
  std::size_t wanted_;
  MemoryOwner wanted_for_;
  DeviceMemoryUse use_;
};

}  // namespace ddprun
