#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/rounding.h"
#include "worker/comm/backends/shm/segment_layout.h"
#include "worker/comm/backends/shm/slices.h"
#include "worker/comm/backends/shm/write_policy.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/reduce/variant.h"

namespace ddprun::comm {

// The staging slots as one operation uses them: the places of its chunks in them, and its copies to and from them.
//
// A slot has room for several chunks, which use one place after the other: a line is written again only after it has
// left the caches near the cores that read it, which is several times as quick. A chunk is small enough to stay in the
// nearest caches until it is read, and so that a rank reads one while another writes the next; it is large enough that
// the phase that it takes (0.5 us with two ranks) does not count.
//
// References the layout. One thread at a time.
class StagingArea {
 public:
  explicit StagingArea(const SegmentLayout& layout)
      : layout_(layout), ranks_run_together_(layout.processors().count() >= layout.ranks()) {}

  // Does a part of an operation, or all that is left of it. The functions below are about that operation.
  template <class Part>
  void run(const Collective& collective, Part part) {
    const auto& operation = collective.operation;
    places_ = places_of(operation);
    const auto bytes = operation.own_parts() ? 0 : operation.count * size_of(operation.dtype);  // the same at all ranks
    const auto chunks = std::max<std::size_t>(1, written_bytes(operation, bytes) / places_.bytes);
    kind_ = {operation.kind, bytes, static_cast<std::uint32_t>(divide_up(2 * places_.count, chunks))};
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
  }

  // The largest chunk of a slot, or of a section of one, whichever the operation uses.
  std::size_t elements_of_chunk(DType dtype) const { return elements_in(places_.bytes, dtype); }
  // The place of the chunk that is written to a rank's slot, or to its section for a rank, in that phase.
  std::byte* slot(int rank, std::uint32_t phase) const { return layout_.slot(rank, phase) + offset_in(phase); }
  std::byte* section(int owner, int rank, std::uint32_t phase) const {
    return layout_.section(owner, rank, phase) + offset_in(phase);
  }

  bool past_caches() const { return choice_.way == WritePolicy::Way::past_caches; }
  void write(std::byte* to, const void* from, std::size_t bytes) const {
    if (past_caches()) return kernels().copy_past_caches(to, from, bytes);
    kernels().copy_for_peers(to, from, bytes);
  }
  // Copies into memory that this rank has read not long ago, which is why it does not write past the caches.
  static void read(void* to, const std::byte* from, std::size_t bytes) { kernels().copy_from_peer(to, from, bytes); }

 private:
  // The size of a place in a slot, or in each of its sections, and how many there are.
  struct Places {
    std::size_t bytes = cache_line_bytes, count = 1;
  };
  Places places_of(const Operation& operation) const;
  // Returns what an operation on that many bytes writes to a slot, or to each of its sections, with all its chunks.
  std::size_t written_bytes(const Operation& operation, std::size_t bytes) const {
    const auto ranks = static_cast<std::size_t>(layout_.ranks());
    return operation.kind == OpKind::allreduce ? divide_up(bytes, ranks) : bytes;  // the largest slice
  }
  // Every second phase uses the same slot.
  std::size_t offset_in(std::uint32_t phase) const { return phase / 2 % places_.count * places_.bytes; }

  const SegmentLayout& layout_;
  const bool ranks_run_together_;  // true if each rank can have a processor
  WritePolicy policy_;
  Places places_;  // this and the following are those of the operation under way
  WritePolicy::Kind kind_{};
  WritePolicy::Choice choice_{};
  WritePolicy::Duration took_{};
};

}  // namespace ddprun::comm
