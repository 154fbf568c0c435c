#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "worker/checkpoint/checkpoint_folder.h"
#include "worker/checkpoint/copy_memory.h"

namespace ddprun::checkpoint {

inline constexpr std::size_t copy_alignment = 64;  // bytes: each tensor's copy begins at a multiple

// A copy of a checkpoint's content, so that it can be written while the run goes on. What does not change yet is copied
// later, on other threads.
//
// Ownership: the memory for the copies is the caller's, and serves no other snapshot meanwhile. Threads: any number may
//   call copy_rest() and wait(). Errors: those of CopyMemory.
class Snapshot {
 public:
  using Memory = std::vector<std::span<const std::byte>>;

  // Copies the tensors of the content that are in the memory now; copy_rest() copies those in the memory later, which
  // does not change until wait() returns. The others stay the caller's, and are valid as long as this object.
  Snapshot(Content content, const Memory& now, const Memory& later, CopyMemory& memory);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Copies pieces that no other thread copies, until all have been begun.
  void copy_rest();
  // Waits until all pieces are copied.
  void wait() const;
  // REQUIRES: wait() has returned.
  const Content& content() const { return content_; }

 private:
  struct Rest;

  Content content_;
  std::byte* memory_ = nullptr;
  std::unique_ptr<Rest> rest_;
};

}  // namespace ddprun::checkpoint
