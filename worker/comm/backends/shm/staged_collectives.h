#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/comm/backends/shm/phases.h"
#include "worker/comm/backends/shm/rank_inputs.h"
#include "worker/comm/backends/shm/segment_layout.h"
#include "worker/comm/backends/shm/staged_exchanges.h"
#include "worker/comm/backends/shm/staging_area.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// Protocol for all other collectives: the data moves through the ranks' staging slots, in phases and a chunk at a time.
// References the layout. Any thread may call wake(); all else is for one thread at a time. Throws what Phases and
// StagedExchanges throw.
class StagedCollectives {
 public:
  StagedCollectives(const SegmentLayout& layout, int rank, const std::atomic<bool>& interrupted,
                    ProcessorSharing& sharing)
      : layout_(layout),
        rank_(rank),
        phases_(layout, rank, interrupted, sharing),
        area_(layout),
        exchanges_(layout, rank, phases_, area_),
        inputs_(layout.ranks()) {}

  // Does what needs no peer before the announcement, which then publishes it too: one synchronization less.
  // REQUIRES: execute() of the same collective follows.
  void start_early(const Collective& collective);
  void execute(const Collective& collective);
  // Wakes all sleepers, so that they check whether they are interrupted.
  void wake() noexcept { phases_.wake(); }

 private:
  void run(const Collective& collective);
  void allreduce(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void allgather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void barrier();

  std::size_t allreduce_chunk(DType dtype) const;
  Span slice_of(const Span& buffer, std::size_t chunk, int r) const;
  void distribute_slices(const Span& buffer, std::size_t chunk, std::uint32_t phase) const;
  void reduce_for_all(ReduceOp op, const Span& own, std::uint32_t phase);
  void find_inputs(const void* own_input, std::uint32_t phase);
  template <class Body>
  void for_each_peer(Body body) const {
    comm::for_each_peer(layout_.ranks(), rank_, body);
  }

  const SegmentLayout& layout_;
  const int rank_;
  Phases phases_;
  StagingArea area_;
  StagedExchanges exchanges_;
  RankInputs inputs_;
};

}  // namespace ddprun::comm
