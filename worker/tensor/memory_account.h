#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "worker/tensor/memory_owner.h"

namespace ddprun {

// The memory that this process has of a device.
//
// Ownership: the account of a device lives as long as the process. Threads: any.
class MemoryAccount {
 public:
  static MemoryAccount& of(Device device);

  void add(MemoryOwner owner, std::size_t bytes) {
    tensors_[index(owner)].fetch_add(bytes, std::memory_order_relaxed);
    const std::size_t now = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void remove(MemoryOwner owner, std::size_t bytes) {
    tensors_[index(owner)].fetch_sub(bytes, std::memory_order_relaxed);
    allocated_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  void claim(MemoryOwner owner, std::size_t bytes) { claims_[index(owner)] += bytes; }
  void give_up(MemoryOwner owner, std::size_t bytes) { claims_[index(owner)] -= bytes; }

  void reset_peak() { peak_ = allocated_.load(); }
  MemoryStats stats() const { return {.allocated = allocated_, .peak = peak_}; }
  OwnedMemory by_owner() const {
    OwnedMemory all;
    for (std::size_t i = 0; i < memory_owners; ++i) {
      all.tensors[i] = tensors_[i];
      all.claims[i] = claims_[i];
    }
    return all;
  }

 private:
  static constexpr std::size_t index(MemoryOwner owner) { return static_cast<std::size_t>(owner); }

  std::atomic<std::size_t> allocated_ = 0;  // the bytes of tensors
  std::atomic<std::size_t> peak_ = 0;
  std::array<std::atomic<std::size_t>, memory_owners> tensors_{}, claims_{};
};

}  // namespace ddprun
