#pragma once

#include <cstddef>
#include <vector>

#include "worker/comm/operations/call.h"

// Plans collectives on memory of a device as collectives on memory of the host. No memory is accessed.
namespace ddprun::comm {

// The division of an operation: piece i has the elements from i * elements on of each rank's part, or of the buffer
// where that is not in parts. It is the same at every rank.
struct Division {
  std::size_t pieces = 1;
  std::size_t elements = 0;  // the number of elements of each piece but the last
};

// Divides a call into pieces of about that many bytes of the largest buffer. There is one where the operation has
// several spans or unequal parts, or where it reduces and a piece would not give the bits of the whole (reduces_alike:
// ProcessGroup::reduces_elements_alike()).
Division divide(const Call& call, int ranks, std::size_t piece_bytes, bool reduces_alike);

// Memory of the device and its place in the staging memory.
struct StagedSpan {
  void* device = nullptr;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  friend bool operator==(const StagedSpan&, const StagedSpan&) = default;
};

// A piece of a call.
struct StagedCall {
  Call call;                              // on the staging memory
  std::vector<StagedSpan> read, written;  // the memory that the host call reads, and the memory that it writes
};

std::size_t staging_bytes(const Call& call, const Division& division);
// An operation in place stays in place; an allreduce and a reduce are in place in any case. A call of one of several
// pieces has the size of the whole, which the ranks compare (Operation::layout).
// REQUIRES: staging has staging_bytes() bytes.
StagedCall plan_staged_call(const Call& call, const Division& division, std::size_t piece, RankInfo rank_info,
                            std::byte* staging);

}  // namespace ddprun::comm
