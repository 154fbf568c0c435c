#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/tensor/memory_owner.h"

namespace ddprun {

// Every tensor's own memory starts at a multiple of this many bytes: a cache line, and a vector register of AVX-512.
inline constexpr std::size_t storage_alignment = 64;

// Memory on a device, which any number of tensors see parts of. Shared by its tensors through std::shared_ptr and freed
// with the last. Its own memory returns to the device's cache of freed blocks: a training step allocates the same sizes
// again and again, and without the cache every large one would cost page faults, or calls of the driver.
//
// Threads: allocation and release are thread-safe; contents and version are not synchronized.
class Storage {
 public:
  // Allocates uninitialized memory, counted for the thread's MemoryScope. Throws std::bad_alloc for memory of the host,
  // and for a CUDA device what cuda::api() throws, the error of the device, and OutOfDeviceMemory (device_memory.h).
  static std::shared_ptr<Storage> allocate(std::size_t bytes, Device device);
  // Wraps memory from outside, kept alive by owner; it is not counted in memory_stats().
  static std::shared_ptr<Storage> wrap(void* data, std::size_t bytes, Device device, std::shared_ptr<void> owner);
  // Allocates memory of the host for the time of a library's call, from the cache; it is not counted either. Throws
  // std::bad_alloc.
  static std::shared_ptr<Storage> allocate_scratch(std::size_t bytes);
  // Allocates page-locked memory of the host, which a CUDA device copies without another copy in between; it is not
  // counted either. Throws what cuda::api() throws.
  static std::shared_ptr<Storage> allocate_pinned(std::size_t bytes);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_pinned() const { return pinned_; }

  // Counts changes in place: what was derived from the contents, such as a weight cast to 16 bits, or saved for a
  // backward pass, is valid as long as it stays equal.
  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

  // Returns whether the contents are there: the owner of memory from outside may take them away for a while and bring
  // the same ones back, which is no change. An operation refuses an operand that is absent.
  bool is_present() const { return present_; }
  void set_present(bool present) { present_ = present; }

 private:
  Storage(void* data, std::size_t bytes, Device device, std::shared_ptr<void> owner, std::size_t block_bytes);

  void* data_;
  std::size_t bytes_;
  std::size_t block_bytes_;  // the size of the device allocator's block; 0 for memory from outside
  std::shared_ptr<void> owner_;
  std::uint64_t version_ = 0;
  bool present_ = true;
  bool pinned_ = false;
  MemoryOwner counted_for_ = MemoryOwner::activations;
  Device device_;
};

}  // namespace ddprun
