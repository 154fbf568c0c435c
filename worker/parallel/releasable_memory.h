#pragma once

#include <cstddef>
#include <memory>

namespace ddprun {

// Memory at one address whose pages can be given back to the system: tensors and tapes may go on referring to it, and
// its contents are zero until they are written again. Page-aligned; initially zero, without pages. In a ShapeOnlyScope
// it is a block of the scope's addresses, of which nothing is given back.
//
// Ownership: owns the mapping. Threads: those of any memory. Errors: the constructor throws Errc::io.
class ReleasableMemory {
 public:
  explicit ReleasableMemory(std::size_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  void release();
  // The size of the pages that are resident.
  std::size_t resident_bytes() const;

 private:
  std::size_t bytes_ = 0;
  bool has_pages_ = true;  // false in a ShapeOnlyScope
  std::shared_ptr<void> memory_;
};

}  // namespace ddprun
