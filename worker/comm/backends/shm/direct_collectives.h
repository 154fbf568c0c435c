#pragma once

#include <cstddef>
#include <vector>

#include "worker/comm/backends/shm/announcement_ring.h"
#include "worker/comm/backends/shm/payload.h"
#include "worker/comm/backends/shm/rank_inputs.h"
#include "worker/comm/backends/shm/regions.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// Protocol for inputs in registered memory: each rank publishes the handle of its input, maps those of the others, and
// reads, or for an allreduce also writes, their memory directly. References the ring and the regions; one thread at a
// time. Throws what AnnouncementRing throws, and Errc::unsupported when a region cannot be mapped.
class DirectCollectives {
 public:
  DirectCollectives(int ranks, int rank, AnnouncementRing& ring, const OwnRegions& regions)
      : ranks_(ranks),
        rank_(rank),
        ring_(ring),
        own_regions_(regions),
        peer_regions_(ranks),
        inputs_(ranks),
        outputs_(inputs_.size()) {}

  // Inputs of this size and more take this protocol, because a second synchronization then costs less than a copy of
  // the data. With more than two ranks it rarely happens between two processors that are otherwise idle.
  std::size_t min_bytes() const { return ranks_ == 2 ? 2048 : SegmentLayout::max_payload_bytes + 1; }
  bool too_small(const Operation& operation) const { return input_bytes(operation, ranks_) < min_bytes(); }
  // Writes the payload of this rank's next announcement. Returns false if its input is too small or not registered.
  bool publish(const Collective& collective) {
    const auto bytes =
        collective.operation.unequal() ? collective.input.bytes() : input_bytes_of(collective.operation, ranks_, rank_);
    return bytes >= min_bytes() && publish_handle(collective);
  }
  // REQUIRES: all ranks that have an input have announced it with PayloadKind::region. Returns once all ranks are done
  // with each other's memory.
  void execute(const Collective& collective);

 private:
  bool publish_handle(const Collective& collective);
  void map_inputs(const Collective& collective);
  void allreduce(const Collective& collective);

  const int ranks_;
  const int rank_;
  AnnouncementRing& ring_;
  RegionLookup own_regions_;
  PeerRegions peer_regions_;
  RankInputs inputs_;
  std::vector<void*> outputs_;  // kept, so that no call allocates
};

}  // namespace ddprun::comm
