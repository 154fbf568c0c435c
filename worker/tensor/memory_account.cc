#include "worker/tensor/memory_account.h"

#include <utility>

namespace ddprun {
namespace {

thread_local MemoryOwner current = MemoryOwner::activations;

}  // namespace

std::string_view name_of(MemoryOwner owner) {
  switch (owner) {
    case MemoryOwner::activations:
      return "activations and temporaries";
    case MemoryOwner::parameters:
      return "parameters";
    case MemoryOwner::gradients:
      return "gradients";
    case MemoryOwner::optimizer:
      return "optimizer state";
    case MemoryOwner::casts:
      return "weights in 16 bits";
    case MemoryOwner::communication:
      return "buffers of communication";
  }
  return "";
}

MemoryScope::MemoryScope(MemoryOwner owner) : before_(std::exchange(current, owner)) {}
MemoryScope::~MemoryScope() {
  current = before_;
}

MemoryOwner memory_owner() {
  return current;
}

// An account is never destroyed: tensors in static objects may outlive it otherwise.
MemoryAccount& MemoryAccount::of(Device device) {
  static auto* of_cpu = new std::array<MemoryAccount, max_devices>;
  static auto* of_cuda = new std::array<MemoryAccount, max_devices>;
  return (device.type == DeviceType::cpu ? of_cpu : of_cuda)->at(static_cast<std::size_t>(device.index));
}

MemoryClaim::MemoryClaim(Device device, MemoryOwner owner, std::size_t bytes)
    : device_(device), owner_(owner), bytes_(bytes) {
  MemoryAccount::of(device_).claim(owner_, bytes_);
}
MemoryClaim::~MemoryClaim() {
  MemoryAccount::of(device_).give_up(owner_, bytes_);
}

OwnedMemory memory_by_owner(Device device) {
  return MemoryAccount::of(device).by_owner();
}

MemoryStats memory_stats(Device device) {
  return MemoryAccount::of(device).stats();
}

void reset_peak_memory(Device device) {
  MemoryAccount::of(device).reset_peak();
}

}  // namespace ddprun
