#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/comm/operations/call.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {

// Copies to its place in the output what a rank's own input contributes to an allgather or to an all_to_all; nothing in
// other collectives. It needs no peer, so a rank does it while its announcement travels.
void copy_own_part(const Collective& collective, int rank);

// The addresses of all ranks' inputs to a collective, readable by this process, and the computation of its output from
// them. One thread at a time.
class RankInputs {
 public:
  explicit RankInputs(int ranks) : inputs_(static_cast<std::size_t>(ranks)), shifted_(inputs_.size()) {}

  std::size_t size() const { return inputs_.size(); }
  const void*& operator[](int rank) { return inputs_[static_cast<std::size_t>(rank)]; }
  // Returns every rank's input from that element on. Valid until the next call.
  std::span<const void* const> from(std::size_t first, DType dtype) {
    return first == 0 ? inputs_ : shift(first, dtype);
  }

  // result := op over all inputs, from their element first on.
  void reduce(ReduceOp op, std::size_t first, const Span& result) {
    void* const output = result.data;
    reduce_all(op, result.dtype, {&output, 1}, from(first, result.dtype), result.count);
  }
  // Writes this rank's output of a collective with parts that every rank knows, after copy_own_part().
  void write_output(const Collective& collective, int rank);

 private:
  std::span<const void* const> shift(std::size_t first, DType dtype);
  void copy_parts_of_peers(const Collective& collective, int rank, std::size_t offset);

  std::vector<const void*> inputs_;
  std::vector<const void*> shifted_;  // kept, so that no call allocates
};

}  // namespace ddprun::comm
