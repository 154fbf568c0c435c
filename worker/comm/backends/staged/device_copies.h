#pragma once

#include <cstddef>
#include <memory>

#include "worker/comm/backends/nccl/cuda_resources.h"
#include "worker/comm/registered_buffer.h"

namespace ddprun::comm {

// Copies of one direction between a device and the host, on a stream of their own: a device copies in both directions
// at once only from two streams. The host polls events, so that an abort ends its wait.
//
// Threads: one thread at a time calls it, with the device current.
// Errors: Errc::io for what CUDA fails to do.
class CopyStream {
 public:
  explicit CopyStream(int device) : stream_(device) {}
  // Copies that are queued from now on begin after the event.
  void follow(const Event& event) { event.precede(stream_); }
  void to_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, cudaMemcpyDeviceToHost); }
  void to_device(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  // Records an event that the caller owns (cudaEvent_t) after all copies so far, unless it is null.
  void record(void* event) {
    if (event) record_event(event, stream_);
  }
  // Returns an event that is reached once all copies so far are complete.
  std::unique_ptr<Event> mark() const;
  // Returns whether no copy is left at the deadline, by when the device has executed or dropped them.
  bool await_idle(Deadline deadline) const noexcept { return stream_.await_idle(deadline); }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

  Stream stream_;
};

// Page-locked memory of the host, for copies of a device, which is current. It grows to the largest size that was asked
// for.
class StagingMemory {
 public:
  explicit StagingMemory(int device) : device_(device) {}
  // REQUIRES: nobody uses what an earlier call returned.
  std::byte* at_least(std::size_t bytes);
  // Leaves the memory to a device that does not finish its copies: CUDA would wait for it before it frees the memory.
  void abandon() { static_cast<void>(memory_.release()); }

 private:
  int device_;
  std::unique_ptr<PinnedMemory> memory_;
  std::size_t bytes_ = 0;
};

// Returns zeroed memory of the device.
RegisteredBuffer zeroed_device_memory(int device, std::size_t bytes);

}  // namespace ddprun::comm
