#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "worker/comm/backends/shm/segment_layout.h"
#include "worker/comm/backends/shm/write_policy.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/reduce/variant.h"

namespace ddprun::comm {

// The staging slots as one operation uses them: its place in them, and its copies to and from them.
//
// Small operations, of which several fit into a slot, use one place after the other: a line is written again only after
// it has left the caches near the cores that read it, which is several times as quick.
//
// References the layout. One thread at a time.
class StagingArea {
 public:
  explicit StagingArea(const SegmentLayout& layout) : layout_(layout) {}

  // Does a part of an operation, or all that is left of it. The functions below are about that operation.
  template <class Part>
  void run(const Collective& collective, Part part) {
    const auto& operation = collective.operation;
    const Places places = places_of(operation);
    // Operations may alternate between slots of both parities: with an even number of places, each turn through them
    // begins one further, so that all of both slots is used.
    const auto shift = places.count % 2 == 0 ? operations_ / places.count : 0;
    offset_ = (operations_ + shift) % places.count * places.bytes;
    const auto bytes = operation.own_parts() ? 0 : operation.count * size_of(operation.dtype);  // the same at all ranks
    kind_ = {operation.kind, bytes, static_cast<std::uint32_t>(2 * places.count)};
    choice_ = policy_.choose(kind_);
    if (!choice_.measured) return part();
    const auto start = std::chrono::steady_clock::now();
    part();
    took_ += std::chrono::steady_clock::now() - start;
  }
  // Ends the operation.
  void end() {
    policy_.end(kind_, took_);
    took_ = {};
    ++operations_;
  }

  std::byte* slot(int rank, std::uint32_t phase) const { return layout_.slot(rank, phase) + offset_; }
  std::byte* section(int owner, int rank, std::uint32_t phase) const {
    return layout_.section(owner, rank, phase) + offset_;
  }

  bool past_caches() const { return choice_.way == WritePolicy::Way::past_caches; }
  void write(std::byte* to, const void* from, std::size_t bytes) const {
    if (past_caches()) return kernels().copy_past_caches(to, from, bytes);
    std::memcpy(to, from, bytes);
  }
  // Copies into memory that this rank has read not long ago. Beside writes past the caches the loop is the quicker copy
  // (4 MiB: 370 against 470 us), beside others the C library's.
  void read(void* to, const std::byte* from, std::size_t bytes) const {
    if (past_caches()) return kernels().copy(to, from, bytes);
    std::memcpy(to, from, bytes);
  }

 private:
  // The bytes that an operation needs of a slot, or of each of its sections, and how often they fit there.
  struct Places {
    std::size_t bytes = 0, count = 1;
  };
  Places places_of(const Operation& operation) const;

  const SegmentLayout& layout_;
  WritePolicy policy_;
  std::uint64_t operations_ = 0;  // the number that have ended, the same at all ranks
  WritePolicy::Kind kind_{};      // this and the following are those of the operation under way
  WritePolicy::Choice choice_{};
  std::size_t offset_ = 0;
  WritePolicy::Duration took_{};
};

}  // namespace ddprun::comm
