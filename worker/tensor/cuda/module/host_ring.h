#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <span>

#include "worker/tensor/cuda/module/memory.h"
#include "worker/tensor/cuda/module/stream.h"

namespace ddprun::cuda {

// Frees page-locked memory of the host.
struct FreePinned {
  void operator()(std::byte* memory) const { cudaFreeHost(memory); }
};
using PinnedMemory = std::unique_ptr<std::byte[], FreePinned>;
PinnedMemory make_pinned(std::size_t bytes);

// Arrays of the host on their way to the device: each is copied into page-locked memory, from which the device reads it
// later, and the caller's is free at once. The memory consists of parts that are used in turn; one is used again once
// the device has read all that was in it.
//
// Threads: one thread at a time uses it.
class HostRing {
 public:
  // synchronizations counts how often the host had to wait for a part.
  HostRing(cudaStream_t stream, Memory& memory, std::atomic<std::uint64_t>& synchronizations);

  // Returns the array in memory of the device, for kernels that are queued on the stream while the result lives.
  template <class T>
  Scratch upload(std::span<const T> array) {
    return upload_bytes(std::as_bytes(array));
  }

 private:
  static constexpr std::size_t part_bytes = 64 * 1024;
  struct Part {
    Event read{Event::Use::order};
    bool waiting = false;  // true if the event was recorded
  };

  Scratch upload_bytes(std::span<const std::byte> bytes);
  std::span<std::byte> take(std::size_t bytes);  // as many as the part has left, one at least
  void next_part();

  cudaStream_t stream_;
  Memory& memory_;
  std::atomic<std::uint64_t>& synchronizations_;
  std::array<Part, 4> parts_;
  PinnedMemory pinned_;
  std::size_t part_ = 0, used_ = 0;
};

}  // namespace ddprun::cuda
