#pragma once

#include <cstddef>
#include <cstdint>

#include "ddprun/worker/comm/shm/board.h"
#include "ddprun/worker/comm/shm/phases.h"
#include "ddprun/worker/comm/transport.h"

namespace ddprun::comm {

// The collectives that every rank takes an equal part in, over a Board and in its Phases. Blocking; they throw what
// Phases throws.
class ShmCollectives {
 public:
  ShmCollectives(const Board& board, int rank, Phases& phases) : board_(board), rank_(rank), phases_(phases) {}

  void carry_out(const Collective& collective);

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

  Range slice_within(std::size_t count, std::size_t element, int rank) const;
  std::size_t place_bytes() const;
  std::byte* place(int owner, int r, std::uint32_t phase) const;
  void reduce_own(ReduceOp op, const void* own_input, Span result, std::uint32_t phase) const;
  template <class Body>
  void for_each_other(Body body) const;

  const Board& board_;
  const int rank_;
  Phases& phases_;
};

}  // namespace ddprun::comm
