#pragma once

#include <cstddef>
#include <cstdint>

#include "ddprun/worker/comm/shm/board.h"
#include "ddprun/worker/comm/transport.h"

namespace ddprun::comm {

// The collectives over a Board. Blocking; they throw std::runtime_error when interrupted, past the deadline, or when
// another rank calls something else.
//
// An operation is a sequence of phases, the same at every rank. In a phase a rank writes its own slot of the phase's
// parity and reads what others wrote in the phase before; then it raises its counter. It begins the next phase once all
// counters have come that far. So a slot is written again two phases later, when everybody has read it.
class ShmCollectives {
 public:
  ShmCollectives(const Board& board, int rank, const std::atomic<bool>& interrupted)
      : board_(board), rank_(rank), interrupted_(interrupted), patience_(Patience::for_ranks(board.ranks())) {}

  void carry_out(const Collective& collective);
  void wake() noexcept;

 private:
  // Part [begin, end) of a buffer, in elements.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t count() const { return end - begin; }
  };

  void allreduce(const Collective& collective);
  void allreduce_at_once(const Collective& collective);
  void allreduce_in_slices(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void allgather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void barrier();

  template <class Stage>
  void pipeline(std::size_t chunks, std::size_t stages, Stage stage);
  void begin_phase();
  void end_phase();
  void await_all();
  Range slice_within(std::size_t count, std::size_t element, int rank) const;
  std::size_t place_bytes() const;
  std::byte* place(int owner, int r, std::uint32_t phase) const;
  void reduce_own(ReduceOp op, const void* own_input, Span result, std::uint32_t phase) const;
  template <class Body>
  void for_each_other(Body body) const;

  const Board& board_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const Patience patience_;

  std::uint32_t phase_ = 0;  // completed
  std::uint64_t call_ = 0;   // identifies the operation
  Deadline deadline_ = Deadline::never();
};

}  // namespace ddprun::comm
