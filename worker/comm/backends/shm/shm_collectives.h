#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddprun/worker/comm/backends/shm/announcement_ring.h"
#include "ddprun/worker/comm/backends/shm/phases.h"
#include "ddprun/worker/comm/backends/shm/regions.h"
#include "ddprun/worker/comm/backends/shm/segment_layout.h"
#include "ddprun/worker/comm/backends/shm/shm_exchanges.h"
#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

// The collectives over a SegmentLayout. Each begins with a round, in which every rank announces its call, and gives
// along
//   its data         where an operation has little: then the round is all of it;
//   where they lie   where they are in registered memory: the ranks then read, and write, each other's memory;
//   nothing          else: the data go through the ranks' slots in phases.
// Ranks that gave different things go through the slots. Throw what AnnouncementRing and Phases throw.
class ShmCollectives final : public NonblockingCollectives {
 public:
  ShmCollectives(const SegmentLayout& board, int rank, AnnouncementRing& rounds, Phases& phases,
                 ShmExchanges& exchanges, const OwnRegions& regions)
      : board_(board),
        rank_(rank),
        rounds_(rounds),
        phases_(phases),
        exchanges_(exchanges),
        own_places_(regions),
        peers_(board.ranks()),
        inputs_(static_cast<std::size_t>(board.ranks())),
        pieces_(inputs_.size()),
        outputs_(inputs_.size()) {}

  // Announces the collective if that needs no waiting. REQUIRES: nothing started is unfinished.
  void announce(const Collective& collective) noexcept override;
  // REQUIRES: nothing started is unfinished.
  void execute(const Collective& collective);
  // Announces a small collective, so that the others need not wait for this rank; false: it is not small, or too many
  // are started.
  bool start(const Collective& collective) override;
  // Finishes the oldest started one once all ranks have announced it.
  bool test(const Collective& collective, const Deadline& deadline) override;

 private:
  // Part [begin, end) of a buffer, in elements.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t count() const { return end - begin; }
  };
  enum class Given : std::uint8_t { nothing, data, place };

  // What all ranks give alike.
  bool can_be_given(const Operation& operation) const;
  bool is_small(const Collective& collective) const;
  std::size_t gift_bytes(const Collective& collective, int r) const;
  void give(const Collective& collective, bool may_give_place);
  RegionHandle place_of(const Collective& collective);
  template <class Await>
  bool await_needed(const Collective& collective, Await await);
  bool only_gives(const Collective& collective) const;
  Given given_by_all(const Collective& collective) const;
  void finish(const Collective& collective);

  // By what was given: memory of every rank that can be read now.
  void find_gifts(const Collective& collective);
  void find_places(const Collective& collective);
  std::size_t place_from_bytes() const;
  void take_blocks(const Collective& collective, std::size_t from);
  void finish_with_inputs(const Collective& collective);
  void allreduce_in_place(const Collective& collective);
  std::byte* input_place(std::size_t r, std::size_t offset) const;
  void reduce_inputs(ReduceOp op, std::size_t first, const Span& result);
  std::span<const void* const> inputs_from(std::size_t first, DType dtype);

  void finish_by_slots(const Collective& collective);
  void go_ahead_by_slots(const Collective& collective);
  void allreduce(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void allgather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void barrier();

  std::size_t allreduce_chunk(DType dtype) const;
  Span slice_of(const Span& buffer, std::size_t chunk, int r) const;
  void hand_out(const Span& buffer, std::size_t chunk, std::uint32_t phase) const;
  Range slice_within(std::size_t count, DType dtype, int rank) const;
  std::size_t place_bytes() const;
  std::byte* place(int owner, int r, std::uint32_t phase) const;
  void reduce_for_all(ReduceOp op, const Span& own, std::uint32_t phase);
  void reduce_own(ReduceOp op, const void* own_input, Span result, std::uint32_t phase);
  void find_slices(const void* own_input, std::uint32_t phase);
  template <class Body>
  void for_each_other(Body body) const;

  const SegmentLayout& board_;
  const int rank_;
  AnnouncementRing& rounds_;
  Phases& phases_;
  ShmExchanges& exchanges_;
  HandleFinder own_places_;
  PeerRegions peers_;
  bool announced_ = false;           // the one that is carried out next
  std::vector<const void*> inputs_;  // one a rank, of the operation at hand
  std::vector<const void*> pieces_;  // of them
  std::vector<void*> outputs_;       // where all ranks' results go
};

}  // namespace ddprun::comm
