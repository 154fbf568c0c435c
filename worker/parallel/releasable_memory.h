#pragma once

#include <cstddef>

namespace ddprun {

// Memory at one address whose pages can be given back to the system: tensors and tapes may go on referring to it, and
// its contents are zero until they are written again. Page-aligned; initially zero, without pages.
//
// Ownership: owns the mapping. Threads: those of any memory. Errors: the constructor throws Errc::io.
class ReleasableMemory {
 public:
  explicit ReleasableMemory(std::size_t bytes);
  ~ReleasableMemory();
  ReleasableMemory(const ReleasableMemory&) = delete;
  ReleasableMemory& operator=(const ReleasableMemory&) = delete;

  std::byte* data() const { return data_; }
  void release();
  // The size of the pages that are resident.
  std::size_t resident_bytes() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ddprun
