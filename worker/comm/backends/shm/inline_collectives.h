#pragma once

#include "ddprun/worker/comm/backends/shm/announcement_ring.h"
#include "ddprun/worker/comm/backends/shm/payload.h"
#include "ddprun/worker/comm/backends/shm/rank_inputs.h"
#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

// Protocol for small collectives: each rank publishes its input as the payload of its announcement, and computes its
// own output from those of all ranks. References the ring; one thread at a time; throws nothing itself.
class InlineCollectives {
 public:
  InlineCollectives(int ranks, int rank, AnnouncementRing& ring)
      : ranks_(ranks), rank_(rank), ring_(ring), inputs_(ranks) {}

  // The same answer at every rank.
  bool fits(const Operation& operation) const {
    return has_equal_parts(operation) && input_bytes(operation, ranks_) <= SegmentLayout::max_payload_bytes;
  }
  // Writes the payload of this rank's next announcement.
  void publish(const Collective& collective);
  // REQUIRES: all ranks that have an input have announced it with PayloadKind::data.
  void execute(const Collective& collective);

 private:
  const int ranks_;
  const int rank_;
  AnnouncementRing& ring_;
  RankInputs inputs_;
};

}  // namespace ddprun::comm
