#include "worker/comm/backends/staged/device_copies.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/comm/backends/nccl/device_memory.h"

namespace ddprun::comm {

void CopyStream::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  check_cuda(api().cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "cudaMemcpyAsync", stream_.device());
}

std::unique_ptr<Event> CopyStream::mark() const {
  auto event = std::make_unique<Event>(stream_.device());
  event->record(stream_);
  return event;
}

std::byte* StagingMemory::at_least(std::size_t bytes) {
  if (!memory_ || bytes > bytes_) {
    memory_.reset();  // first, so that both do not exist at once
    memory_ = std::make_unique<PinnedMemory>(device_, std::max(bytes, std::size_t{1}));
    bytes_ = bytes;
  }
  return static_cast<std::byte*>(memory_->get());
}

RegisteredBuffer zeroed_device_memory(int device, std::size_t bytes) {
  const CurrentDevice current(device);
  auto memory = std::make_shared<DeviceMemory>(device, std::max<std::size_t>(bytes, 1));
  const Stream stream(device);
  check_cuda(api().cudaMemsetAsync(memory->get(), 0, bytes, stream.get()), "cudaMemsetAsync", device);
  stream.await_idle(Deadline::never());
  auto* const data = static_cast<std::byte*>(memory->get());
  return {std::shared_ptr<std::byte>(std::move(memory), data), bytes};
}

}  // namespace ddprun::comm
