#pragma once

#include <cstddef>
#include <string>

#include "common/error.h"
#include "worker/tensor/memory_owner.h"

namespace ddprun {

// The uses of the memory of a CUDA device, in bytes. All of it is in one of these, so they add up to `total`.
struct DeviceMemoryUse {
  MemoryByOwner owners{};      // held by this process
  std::size_t workspaces = 0;  // held by operations that run
  std::size_t kept = 0;        // held by the allocator of this process, for the next allocation
  std::size_t others = 0;      // held by other processes, and by CUDA and its libraries in this one
  std::size_t free = 0;
  std::size_t total = 0;

  std::size_t of(MemoryOwner owner) const { return owners[static_cast<std::size_t>(owner)]; }
};

// Returns the use at this moment. Thread-safe. REQUIRES: a CUDA device. Errors: those of the device.
DeviceMemoryUse device_memory_use(Device device);
// Returns "optimizer state 3.2 GiB, parameters 1.6 GiB, kept for the next allocation 12.0 MiB" or so, most first.
std::string describe(const DeviceMemoryUse& use);

// A CUDA device has not enough memory, even without what the allocator had kept. what() says how much was wanted and
// for what, and what holds the device's memory. A value.
class OutOfDeviceMemory : public Error {
 public:
  // Makes one for the calling thread's MemoryScope, with what device_memory_use() gives now; throws what that throws.
  OutOfDeviceMemory(Device device, std::size_t wanted);
  OutOfDeviceMemory(Device device, std::size_t wanted, MemoryOwner wanted_for, const DeviceMemoryUse& use);

  Device device() const { return device_; }
  std::size_t wanted() const { return wanted_; }
  MemoryOwner wanted_for() const { return wanted_for_; }
  // Returns the use at the time when the memory was wanted.
  const DeviceMemoryUse& use() const { return use_; }

 private:
  Device device_;
  std::size_t wanted_;
  MemoryOwner wanted_for_;
  DeviceMemoryUse use_;
};

}  // namespace ddprun
