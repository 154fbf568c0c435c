#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "worker/comm/registered_buffer.h"

namespace ddprun::comm {

// The memory that MPI may use. An operation of MPI cannot be cancelled: when the group fails, MPI keeps the memory of
// the unfinished ones. So it gets memory that the group allocated, which stays until nobody holds it, or a copy.
//
// Ownership: what it lends is shared. Threads: thread-safe. Errors: std::bad_alloc, Errc::io. Units: bytes.
class MpiMemory {
 public:
  using Shared = std::shared_ptr<std::byte>;

  RegisteredBuffer allocate(std::size_t bytes);
  // Returns the buffer that has all these bytes, or null.
  Shared find(const void* data, std::size_t bytes) const;

  // Below this size a copy costs less than the search.
  static constexpr std::size_t always_copied = 4096;

 private:
  struct Region {
    std::weak_ptr<std::byte> memory;
    std::size_t bytes;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Region> regions_;  // by their beginning
};

// Memory for the copy of an operation's data, kept for the next operation.
class Staging {
 public:
  std::byte* reserve(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset(new std::byte[bytes]);  // without clearing it
      size_ = bytes;
    }
    return memory_.get();
  }
  // Frees memory that is too large to be kept.
  void trim() {
    if (size_ <= kept) return;
    memory_.reset();
    size_ = 0;
  }

 private:
  static constexpr std::size_t kept = std::size_t{1} << 20;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

}  // namespace ddprun::comm
