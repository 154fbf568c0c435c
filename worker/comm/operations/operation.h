#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/dtype.h"
#include "rendezvous/progress/operation_description.h"
#include "worker/comm/reduction.h"

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

// Describes an operation without its memory: what the ranks have to agree on, and what error messages show. It is a
// trivially copyable value, for shared memory and the operation log.
struct Operation {
  OpKind kind = OpKind::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  // meaningful if it reduces
  // The elements of the buffer, or of one rank's part of it; with unequal parts or several spans, of all together. They
  // are the same at every rank, except with all_to_all's unequal parts.
  std::size_t count = 0;
  double factor = 1;        // premultiplied_sum: this rank's
  int peer = -1;            // reduce, broadcast, gather, scatter: the root; send: the destination; recv: the source
  int tag = 0;              // send, recv
  std::uint32_t parts = 0;  // unequal parts: a digest of their sizes, not 0
  std::uint32_t spans = 0;  // coalesced: their number plus 1
  std::uint64_t layout =
      0;  // coalesced: a digest of their types and sizes; a piece of an operation: count of the whole

  bool point_to_point() const { return kind == OpKind::send || kind == OpKind::recv; }
  bool reduces() const { return kind == OpKind::allreduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter; }
  bool unequal() const { return parts != 0; }
  bool coalesced() const { return spans != 0; }
  // Returns whether there are unequal parts of which each rank knows only its own.
  bool own_parts() const { return kind == OpKind::all_to_all && unequal(); }
  // Returns whether no rank has anything to transfer or to wait for.
  bool empty() const { return count == 0 && kind != OpKind::barrier && !own_parts(); }
  friend bool operator==(const Operation&, const Operation&) = default;
};

// Returns whether two values give the same bits in either order: a minimum or maximum of zeros of both signs does not.
constexpr bool commutes(ReduceOp op) {
  return op != ReduceOp::min && op != ReduceOp::max;
}

// Returns whether the calls of two ranks are the same collective.
bool agree(const Operation& one, const Operation& other);

std::string_view name_of(OpKind kind);
std::string_view name_of(ReduceOp op);

// Returns the fields that other ranks and programs see: published, compared and printed.
OperationDescription description_of(const Operation& operation);
// Returns the text of that description: "allreduce(sum) of 100 float32".
std::string describe(const Operation& operation);

// Returns a digest of what the ranks have to agree on: the same at every rank. Inline, and with multiplications that do
// not wait for each other, as every small collective computes it.
inline std::uint64_t fingerprint(const Operation& operation) {
  const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
  const auto type = number(operation.dtype) << 8 | number(operation.op);
  std::uint64_t hash = (operation.own_parts() ? 0 : operation.count + 1) * 0x9e3779b97f4a7c15ull;
  if (!operation.point_to_point()) {  // a send and its recv differ in kind and peer
    const auto who = number(operation.kind) << 32 | static_cast<std::uint32_t>(operation.peer);
    const auto parts = number(operation.own_parts() ? 1 : operation.parts) << 32 | operation.spans;
    hash ^= (who + 1) * 0xff51afd7ed558ccdull ^ (parts + 1) * 0xc4ceb9fe1a85ec53ull ^ operation.layout;
  }
  hash ^= (type + 1) * 0xd6e8feb86659fd93ull;
  hash ^= hash >> 32;
  return hash * 0xff51afd7ed558ccdull;
}
// Returns 16 bits of it.
std::uint16_t signature(const Operation& operation);

}  // namespace ddprun::comm
