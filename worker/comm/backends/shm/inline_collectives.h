#pragma once

#include "worker/comm/backends/shm/announcement_ring.h"
#include "worker/comm/backends/shm/payload.h"
#include "worker/comm/backends/shm/rank_inputs.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/reduce/variant.h"

namespace ddprun::comm {

// Protocol for small collectives: each rank publishes its input as the payload of its announcement, and computes its
// own output from those of all ranks. References the ring; one thread at a time; throws nothing itself.
class InlineCollectives {
 public:
  InlineCollectives(int ranks, int rank, AnnouncementRing& ring)
      : ranks_(ranks), rank_(rank), ring_(ring), inputs_(ranks) {}

  // Returns the same answer at every rank.
  bool fits(const Operation& operation) const {
    return has_equal_parts(operation) && input_bytes(operation, ranks_) <= SegmentLayout::max_payload_bytes;
  }
  // Writes the payload of this rank's next announcement.
  void publish(const Collective& collective) {
    const auto bytes = input_bytes_of(collective.operation, ranks_, rank_);
    if (bytes == 0) return;
    if (collective.operation.kind == OpKind::all_to_all) return publish_parts(collective, bytes);
    kernels().copy(ring_.payload(bytes), collective.input.data, bytes);
  }
  // REQUIRES: all ranks that have an input have announced it with PayloadKind::data.
  void execute(const Collective& collective) {
    const auto bytes = input_bytes(collective.operation, ranks_);
    for (int r = 0; r < ranks_; ++r) inputs_[r] = ring_.payload_from(r, bytes);
    inputs_[rank_] = collective.input.data;
    inputs_.write_output(collective, rank_);
  }

 private:
  // Leaves out what no peer reads: this rank's own part.
  void publish_parts(const Collective& collective, std::size_t bytes) {
    const auto part = bytes / static_cast<std::size_t>(ranks_), own = static_cast<std::size_t>(rank_) * part;
    const auto* const input = static_cast<const std::byte*>(collective.input.data);
    std::byte* const payload = ring_.payload(bytes);
    kernels().copy(payload, input, own);
    kernels().copy(payload + own + part, input + own + part, bytes - own - part);
  }

  const int ranks_;
  const int rank_;
  AnnouncementRing& ring_;
  RankInputs inputs_;
};

}  // namespace ddprun::comm
