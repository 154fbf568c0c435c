#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "ddprun/worker/comm/backends/nccl/cuda_resources.h"
#include "ddprun/worker/comm/registered_buffer.h"

namespace ddprun::comm {

// Copies between a device and the host, on a stream of their own, and the memory of the host that they use. The host
// waits by polling, so that an abort ends the wait.
//
// Threads: those of one thread at a time, on which the device is current.
// Errors: Errc::io for what CUDA fails to do, Errc::aborted once interrupted() holds.
class DeviceCopies {
 public:
  // interrupted outlives the object.
  explicit DeviceCopies(std::function<bool()> interrupted) : interrupted_(std::move(interrupted)) {}

  // Copies that are queued from now on begin after the event.
  void follow(const Event& event) { event.precede(stream_); }
  void to_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, cudaMemcpyDeviceToHost); }
  void to_device(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  // Reached once all copies so far are complete.
  std::unique_ptr<Event> mark() const;
  void await(const Event& event) const;
  void await_all() const { await(*mark()); }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

  const std::function<bool()> interrupted_;
  Stream stream_;
};

// Page-locked memory of the host. Grows to the largest size that was asked for.
class StagingMemory {
 public:
  // REQUIRES: nobody uses what an earlier call returned.
  std::byte* at_least(std::size_t bytes);

 private:
  std::optional<PinnedMemory> memory_;
  std::size_t bytes_ = 0;
};

// Memory of the device, zero.
RegisteredBuffer zeroed_device_memory(int device, std::size_t bytes);

}  // namespace ddprun::comm
