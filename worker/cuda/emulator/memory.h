#pragma once

#include <cstddef>
#include <map>

namespace ddprun::cuda::emulator {

// The memory of a device: a range of addresses that neither host nor device can read until it is opened.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t capacity);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Memory of the pool is the device's again once the pool is trimmed; the pool uses for an allocation what it keeps.
  enum class Source : bool { device, pool };
  // Returns nullptr if there is no room.
  void* allocate(std::size_t bytes, Source source);
  // Returns false if this is no address that allocate() gave.
  bool free(void* memory);
  bool contains(const void* memory) const;
  // Returns whether the bytes lie in one allocation.
  bool is_allocated(const void* memory, std::size_t bytes) const;
  std::size_t capacity() const { return capacity_; }
  std::size_t allocated() const { return used_ + pool_used_; }
  // Returns the bytes that are allocated, or kept by the pool.
  std::size_t used() const { return used_ + pool_reserved_; }
  std::size_t pool_used() const { return pool_used_; }
  std::size_t pool_reserved() const { return pool_reserved_; }
  void trim_pool(std::size_t bytes_to_keep);

  void open();
  void close();

 private:
  void count(Source source, std::ptrdiff_t bytes);
  std::size_t offset_of(const void* memory) const { return static_cast<const char*>(memory) - base_; }

  std::size_t capacity_, mapped_;
  char* base_ = nullptr;
  std::size_t used_ = 0;  // does not count the pool's
  std::size_t pool_used_ = 0, pool_reserved_ = 0;
  std::size_t touched_ = 0;                  // bytes from base_ that were ever given out
  std::map<std::size_t, std::size_t> free_;  // offset and size
  struct Block {
    std::size_t size;   // the size with what alignment adds
    std::size_t bytes;  // the size that was asked for
    Source source;
  };
  std::map<std::size_t, Block> allocated_;  // by offset
};

}  // namespace ddprun::cuda::emulator
