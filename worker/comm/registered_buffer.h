#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace ddprun {

// Memory that was allocated from a group (ProcessGroup::allocate): where the back end can, the ranks' operations on it,
// or on parts of it, read and write each other's memory directly, and nothing is copied in between. It is used like any
// other memory, and may outlive its group.
//
// After an operation on it has failed, other ranks may still be writing into it: what it holds means nothing until
// their groups have ended too.
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

  // Aligned to a page; zero at first.
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

// Memory of this kind that no group knows of: what a group gives whose back end has no use for another. Throws
// Errc::io.
RegisteredBuffer plain_buffer(std::size_t bytes);

namespace comm {
// So many bytes in whole pages, of which there is one at least. Throws Errc::io for more than any memory holds.
std::size_t whole_pages(std::size_t bytes);
}  // namespace comm

}  // namespace ddprun
