#pragma once

#include <atomic>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <utility>

#include "worker/tensor/cuda/device_api.h"

namespace ddprun::cuda {

// Device memory in the order of one stream, from the driver's pool, which keeps what is released. The pool is preferred
// to a cache of blocks of our own: it maps physical pages where they are wanted, so that blocks of other sizes do not
// fragment it, it returns to the driver what another user of the device needs, and a graph can record it.
//
// Threads: thread-safe.
class Memory {
 public:
  // REQUIRES: the device is current.
  Memory(int ordinal, cudaStream_t stream);

  // Returns nullptr for no bytes. Throws MemoryExhausted where there is not enough, even without what the pool keeps.
  void* allocate(std::size_t bytes);
  // The use of the memory may still be queued on the stream.
  void release(void* memory, std::size_t bytes);
  DeviceMemoryFacts facts() const;

 private:
  void give_back_kept();
  [[noreturn]] void throw_exhausted(std::size_t bytes) const;

  int ordinal_;
  cudaStream_t stream_;
  cudaMemPool_t pool_ = nullptr;
  std::atomic<std::size_t> allocated_ = 0;
};

// Memory for the kernels that are queued while it lives.
class Scratch {
 public:
  Scratch(Memory& memory, std::size_t bytes) : memory_(&memory), data_(memory.allocate(bytes)), bytes_(bytes) {}
  Scratch(Scratch&& other) noexcept
      : memory_(other.memory_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() { memory_->release(data_, bytes_); }

  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  Memory* memory_;
  void* data_;
  std::size_t bytes_;
};

}  // namespace ddprun::cuda
