#pragma once

#include <cstddef>
#include <vector>

#include "ddprun/worker/comm/backends/shm/phases.h"
#include "ddprun/worker/comm/backends/shm/segment_layout.h"
#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

// The collectives in which ranks have parts of different sizes, or different parts to play: gather, scatter,
// all_to_all, and the unequal forms of allgather and reduce_scatter. Over a SegmentLayout, in its Phases, a piece of
// every part at a time. Blocking; they throw what Phases throws, and Errc::mismatch naming both sides when what one
// rank sends another in all_to_allv is not what that one expects.
class ShmExchanges {
 public:
  ShmExchanges(const SegmentLayout& board, int rank, Phases& phases) : board_(board), rank_(rank), phases_(phases) {}

  static bool takes(const Operation& operation);
  void execute(const Collective& collective);

 private:
  void gather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void scatter(const Collective& collective);
  void all_to_all(const Collective& collective);
  std::size_t agree_on_parts(const Collective& collective);

  std::size_t place_bytes() const;
  std::byte* place(int owner, int r, std::uint32_t phase) const;
  template <class Body>
  void for_each_other(Body body) const;

  const SegmentLayout& board_;
  const int rank_;
  Phases& phases_;
};

}  // namespace ddprun::comm
