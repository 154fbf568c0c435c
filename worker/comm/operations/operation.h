#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/comm/reduction.h"

namespace ddprun::comm {

enum class OpKind : std::uint8_t {
  allreduce,
  reduce,
  broadcast,
  allgather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  barrier,
  send,
  recv
};

// What an operation is, apart from its memory: what ranks have to agree on, and what error messages show. A plain value
// that fits into shared memory and into the operation_log.
struct Operation {
  OpKind kind = OpKind::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  // of one that reduces
  // Elements that every rank means: of the buffer, or of one rank's part of it; with unequal parts or several spans, of
  // them all. With all_to_all's unequal parts, this rank's own, which others need not share.
  std::size_t count = 0;
  double factor = 1;         // of a premultiplied sum: this rank's
  int peer = -1;             // reduce, broadcast, gather, scatter: the root; send: the destination; recv: the source
  int tag = 0;               // send, recv
  std::uint32_t parts = 0;   // unequal parts: a digest of their sizes, not 0
  std::uint32_t spans = 0;   // coalesced: how many, plus 1
  std::uint64_t layout = 0;  // coalesced: a digest of their types and sizes

  bool point_to_point() const { return kind == OpKind::send || kind == OpKind::recv; }
  bool reduces() const { return kind == OpKind::allreduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter; }
  bool unequal() const { return parts != 0; }
  bool coalesced() const { return spans != 0; }
  // Unequal parts that each rank knows its own of.
  bool own_parts() const { return kind == OpKind::all_to_all && unequal(); }
  // No rank has anything to do.
  bool empty() const { return count == 0 && kind != OpKind::barrier && !own_parts(); }
  friend bool operator==(const Operation&, const Operation&) = default;
};

// Whether calls of two ranks belong together; not for a send and its recv.
bool agree(const Operation& one, const Operation& other);

std::string_view name_of(OpKind kind);
std::string_view name_of(ReduceOp op);

// "allreduce(sum) of 100 float32", "broadcast of 4 int64 from rank 2", "send of 8 uint8 to rank 1 with tag 7",
// "allgatherv of 10 float32 in all", "allreduce_coalesced(sum) of 100 float32 in 3 spans", "barrier"
std::string describe(const Operation& operation);

// Differs, in all likelihood, between operations which ranks must not mix up. The same on every rank.
std::uint64_t fingerprint(const Operation& operation);
// The same in 16 bits.
std::uint16_t signature(const Operation& operation);

}  // namespace ddprun::comm
