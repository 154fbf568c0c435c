#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/comm/reduction.h"
#include "ddprun/worker/comm/span.h"

namespace ddprun::comm {

enum class OpKind : std::uint8_t { allreduce, reduce, broadcast, allgather, reduce_scatter, barrier, send, recv };

// What an operation is, apart from its memory: what ranks have to agree on, and what error messages show.
struct Operation {
  OpKind kind = OpKind::barrier;
  DType dtype = DType::uint8;
  std::size_t count = 0;        // elements of the shared measure: allgather's input, reduce_scatter's output
  ReduceOp op = ReduceOp::sum;  // allreduce, reduce, reduce_scatter
  double factor = 1;            // of a premultiplied sum: this rank's
  int peer = -1;                // reduce, broadcast: the root; send: the destination; recv: the source
  int tag = 0;                  // send, recv

  bool point_to_point() const { return kind == OpKind::send || kind == OpKind::recv; }
  bool reduces() const { return kind == OpKind::allreduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter; }
  friend bool operator==(const Operation&, const Operation&) = default;
};

// One call of one rank: what is to be done, with which memory. Known to be right.
struct Call {
  Operation operation;
  ConstSpan input;  // the same memory as output where the operation works in place
  Span output;
  OpOptions options;
};

// Whether calls of two ranks belong together; not for a send and its recv.
bool agree(const Operation& one, const Operation& other);

std::string_view name_of(OpKind kind);
std::string_view name_of(ReduceOp op);

// "allreduce(sum) of 100 float32", "broadcast of 4 int64 from rank 2", "send of 8 uint8 to rank 1 with tag 7",
// "barrier"
std::string describe(const Operation& operation);

// 16 bits that differ, in all likelihood, between operations which ranks must not mix up. The same on every rank.
std::uint16_t signature(const Operation& operation);

// Throw Errc::usage naming the values; return what is to be done. size: of the group.
Operation checked_allreduce(Span buffer, Reduction reduction);
Operation checked_reduce(Span buffer, int root, Reduction reduction, int size);
Operation checked_broadcast(Span buffer, int root, int size);
Operation checked_allgather(ConstSpan input, Span output, int size);
Operation checked_reduce_scatter(ConstSpan input, Span output, Reduction reduction, int size);
Operation checked_send(ConstSpan buffer, int destination, int tag, int rank, int size);
Operation checked_recv(Span buffer, int source, int tag, int rank, int size);

}  // namespace ddprun::comm
