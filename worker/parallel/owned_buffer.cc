#include "worker/parallel/owned_buffer.h"

#include <memory>
#include <utility>

#include "common/memory_exhausted.h"
#include "worker/tensor/device_memory.h"

namespace ddprun {
namespace {

struct Owned {
  Owned(RegisteredBuffer memory, Device device, MemoryOwner owner)
      : buffer(std::move(memory)), claim(device, owner, buffer.bytes()) {}
  RegisteredBuffer buffer;
  MemoryClaim claim;
};

RegisteredBuffer allocate(ProcessGroup& group, std::int32_t device, std::size_t bytes) try {
  return group.allocate_on(device, bytes);
} catch (const MemoryExhausted& error) {
  throw OutOfDeviceMemory({DeviceType::cuda, error.device()}, error.wanted());
}

}  // namespace

RegisteredBuffer owned_buffer(ProcessGroup& group, std::int32_t device, std::size_t bytes, MemoryOwner owner) {
  const MemoryScope scope(owner);
  const Device on = device == host_memory ? Device{} : Device{DeviceType::cuda, device};
  const auto owned = std::make_shared<Owned>(allocate(group, device, bytes), on, owner);
  return {std::shared_ptr<std::byte>(owned, owned->buffer.data()), bytes};
}

}  // namespace ddprun
