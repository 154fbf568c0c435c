#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "worker/tensor/device.h"

namespace ddprun {

// The purposes of a device's memory.
enum class MemoryOwner : std::uint8_t { activations, parameters, gradients, optimizer, casts, communication };
inline constexpr std::size_t memory_owners = 6;
using MemoryByOwner = std::array<std::size_t, memory_owners>;  // bytes, in the order of MemoryOwner

// Returns a text such as "optimizer state".
std::string_view name_of(MemoryOwner owner);

// Assigns what its thread allocates to this owner until the scope ends. A scope within another takes over until it
// ends; without one memory is for activations, which stand for all that a step takes for a while.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryOwner owner);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryOwner before_;
};
// Returns the owner of the calling thread's scope.
MemoryOwner memory_owner();

// Counts memory that was not allocated as a tensor's, such as a process group's, for as long as it lives. Thread-safe.
class MemoryClaim {
 public:
  MemoryClaim(Device device, MemoryOwner owner, std::size_t bytes);
  ~MemoryClaim();
  MemoryClaim(const MemoryClaim&) = delete;
  MemoryClaim& operator=(const MemoryClaim&) = delete;

 private:
  Device device_;
  MemoryOwner owner_;
  std::size_t bytes_;
};

struct OwnedMemory {
  MemoryByOwner tensors{};  // memory_stats() is their sum
  MemoryByOwner claims{};
};
// Returns the memory that the whole process has of a device. Thread-safe.
OwnedMemory memory_by_owner(Device device);

}  // namespace ddprun
