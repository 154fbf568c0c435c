#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "worker/tensor/tensor.h"

namespace ddprun::autograd {

// The place of a leaf's 16-bit copy (AutocastScope) where the leaf's memory is taken away for a while: the owner of
// that memory takes the copy away as well, and makes it again at the same address, so that a tape may refer to it.
// Without it, tapes and the cache of autocast would keep the copies of all leaves.
//
// Ownership: shared by the leaf and the owner of its memory; keeps the copy's memory alive. Threads: one at a time.
// Errors: none of its own.
class CastPlace {
 public:
  // memory: has room for 16-bit elements of the leaf.
  explicit CastPlace(std::shared_ptr<void> memory) : memory_(std::move(memory)) {}

  // Returns the copy of the leaf's contents, and makes it if it is not there or they have changed. REQUIRES: a 16-bit
  // type; the contents are there.
  Tensor cast(const Tensor& leaf, DType dtype);
  // Call where the memory is gone.
  void take_away();
  // Makes the copy again, with the same bits, if a tape refers to it.
  void bring_back(const Tensor& leaf);
  // Returns the size of the copy that is there.
  std::size_t bytes() const { return present_ ? copy_.bytes() : 0; }

 private:
  bool is_copy_of(const Tensor& leaf) const;
  void make(const Tensor& leaf);

  std::shared_ptr<void> memory_;
  Tensor copy_;
  // The contents of which it is the copy.
  const Storage* storage_ = nullptr;
  std::uint64_t version_ = 0;
  bool present_ = false;
};

}  // namespace ddprun::autograd
