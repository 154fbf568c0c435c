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
    const auto* const input = static_cast<const std::byte*>(collective.input.data);
    for_each_read_part(collective.operation, [&](std::byte* payload, std::size_t offset, std::size_t bytes) {
      kernels().copy_for_peers(payload + offset, input + offset, bytes);
    });
  }
  // Prefetches the lines of the next payload, which peers have cached, while the announcement travels.
  void prepare_next(const Operation& operation) {
    for_each_read_part(operation, [&](std::byte* payload, std::size_t offset, std::size_t bytes) {
      kernels().prefetch_for_writing(payload + offset, bytes);
    });
  }
  // REQUIRES: all ranks that have an input have announced it with PayloadKind::data.
  void execute(const Collective& collective) {
    const auto bytes = input_bytes(collective.operation, ranks_);
    for (int r = 0; r < ranks_; ++r) inputs_[r] = ring_.payload_from(r, bytes);
    inputs_[rank_] = collective.input.data;
    inputs_.write_output(collective, rank_);
  }

 private:
  // Calls visit(payload, offset, bytes) for the parts of the next payload that peers read: all but this rank's own part
  // of an all_to_all.
  template <class Visit>
  void for_each_read_part(const Operation& operation, Visit visit) {
    const auto bytes = input_bytes_of(operation, ranks_, rank_);
    if (bytes == 0) return;
    auto* const payload = ring_.payload(bytes);
    if (operation.kind != OpKind::all_to_all) return visit(payload, std::size_t{0}, bytes);
    const auto part = bytes / static_cast<std::size_t>(ranks_), own = static_cast<std::size_t>(rank_) * part;
    visit(payload, std::size_t{0}, own);
    visit(payload, own + part, bytes - own - part);
  }

  const int ranks_;
  const int rank_;
  AnnouncementRing& ring_;
  RankInputs inputs_;
};

}  // namespace ddprun::comm
