#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

enum class OpKind : std::uint8_t { allreduce, broadcast, allgather, reduce_scatter, barrier, send, recv };

// What an operation is, apart from its memory: what ranks have to agree on, and what error messages show.
struct Operation {
  OpKind kind = OpKind::barrier;
  DType dtype = DType::uint8;
  std::size_t count = 0;        // elements of the shared measure: allgather's input, reduce_scatter's output
  ReduceOp op = ReduceOp::sum;  // allreduce, reduce_scatter
  int peer = -1;                // broadcast: the root; send: the destination; recv: the source
  int tag = 0;                  // send, recv

  bool point_to_point() const { return kind == OpKind::send || kind == OpKind::recv; }
  friend bool operator==(const Operation&, const Operation&) = default;
};

std::string_view name_of(OpKind kind);
std::string_view name_of(ReduceOp op);

// "allreduce(sum) of 100 float32", "broadcast of 4 int64 from rank 2", "send of 8 uint8 to rank 1 with tag 7",
// "barrier"
std::string describe(const Operation& operation);

// 16 bits that differ, in all likelihood, between operations which ranks must not mix up. The same on every rank.
std::uint16_t signature(const Operation& operation);

// Throw Errc::usage naming the values; return what is to be done. size: of the group.
Operation checked_allreduce(Span buffer, ReduceOp op);
Operation checked_broadcast(Span buffer, int root, int size);
Operation checked_allgather(ConstSpan input, Span output, int size);
Operation checked_reduce_scatter(ConstSpan input, Span output, ReduceOp op, int size);
Operation checked_send(ConstSpan buffer, int destination, int tag, int rank, int size);
Operation checked_recv(Span buffer, int source, int tag, int rank, int size);

}  // namespace ddprun::comm
