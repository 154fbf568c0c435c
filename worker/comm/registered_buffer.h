#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace ddprun {

// Memory allocated from a group (ProcessGroup::allocate), like that of ncclMemAlloc: if the back end supports it, the
// ranks of an operation on such memory, or parts of it, access each other's memory directly, without a copy in between.
//
// Ownership: owns the memory; movable; may outlive its group.
// Threads: as any memory.
// Errors: after a failed operation other ranks may still write into it, until their groups have ended too.
// Units: bytes.
class RegisteredBuffer {
 public:
  RegisteredBuffer() = default;
  RegisteredBuffer(std::shared_ptr<std::byte> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  RegisteredBuffer(RegisteredBuffer&& other) noexcept
      : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, 0)) {}
  RegisteredBuffer& operator=(RegisteredBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  // The memory is page-aligned and initially zero.
  std::byte* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data()), bytes_ / sizeof(T)};
  }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_ = 0;
};

// A buffer of ordinary memory, for back ends without registration. Throws Errc::io.
RegisteredBuffer plain_buffer(std::size_t bytes);

namespace comm {
// Returns bytes rounded up to whole pages, at least one. Throws Errc::io when no memory can have that size.
std::size_t whole_pages(std::size_t bytes);
}  // namespace comm

}  // namespace ddprun
