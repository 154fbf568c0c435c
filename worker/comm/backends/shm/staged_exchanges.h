#pragma once

#include <cstddef>
#include <vector>

#include "worker/comm/backends/shm/phases.h"
#include "worker/comm/backends/shm/segment_layout.h"
#include "worker/comm/backends/shm/staging_area.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// The collectives in which ranks have parts of different sizes or different roles: gather, scatter, all_to_all, and the
// unequal forms of allgather and reduce_scatter. They move through the staging slots of a SegmentLayout, a chunk of
// every part at a time. References what it is made of. Calls block; one thread at a time. Throws what Phases throws,
// and Errc::mismatch naming both ranks when one sends another a different size in all_to_allv than that one expects.
class StagedExchanges {
 public:
  StagedExchanges(const SegmentLayout& layout, int rank, Phases& phases, StagingArea& area)
      : layout_(layout), rank_(rank), phases_(phases), area_(area) {}

  static bool handles(const Operation& operation);
  // Runs within the deadline that is set for the phases, as a part that the area runs.
  void execute(const Collective& collective);

 private:
  void gather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void scatter(const Collective& collective);
  void all_to_all(const Collective& collective);
  std::size_t compare_parts(const Collective& collective);
  std::size_t elements_of_chunk(const Collective& collective) const {
    return area_.elements_of_chunk(collective.operation.dtype);
  }
  void write(std::byte* slot, ConstSpan from) const {
    if (from.count > 0) area_.write(slot, from.data, from.bytes());
  }
  template <class Body>
  void for_each_peer(Body body) const {
    comm::for_each_peer(layout_.ranks(), rank_, body);
  }

  const SegmentLayout& layout_;
  const int rank_;
  Phases& phases_;
  StagingArea& area_;
};

}  // namespace ddprun::comm
