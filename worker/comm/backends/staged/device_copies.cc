#include "ddprun/worker/comm/backends/staged/device_copies.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "ddprun/common/error.h"

namespace ddprun::comm {

void DeviceCopies::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  check_cuda(api().cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "copying between device and host");
}

std::unique_ptr<Event> DeviceCopies::mark() const {
  auto event = std::make_unique<Event>();
  event->record(stream_);
  return event;
}

void DeviceCopies::await(const Event& event) const {
  constexpr int yields = 2000;  // about the duration of a small copy
  for (int tries = 0; !event.reached(); ++tries) {
    if (interrupted_()) throw Error(Errc::aborted, "the group was aborted while it copied memory of the device");
    if (tries < yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

std::byte* StagingMemory::at_least(std::size_t bytes) {
  if (!memory_ || bytes > bytes_) {
    memory_.emplace(std::max(bytes, std::size_t{1}));
    bytes_ = bytes;
  }
  return static_cast<std::byte*>(memory_->get());
}

RegisteredBuffer zeroed_device_memory(int device, std::size_t bytes) {
  const CurrentDevice current(device);
  auto memory = std::make_shared<DeviceMemory>(std::max<std::size_t>(bytes, 1));
  const Stream stream;
  check_cuda(api().cudaMemsetAsync(memory->get(), 0, bytes, stream.get()), "clearing memory");
  stream.await_idle(Deadline::never());
  auto* const data = static_cast<std::byte*>(memory->get());
  return {std::shared_ptr<std::byte>(std::move(memory), data), bytes};
}

}  // namespace ddprun::comm
