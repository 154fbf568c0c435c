#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/comm/work.h"

namespace ddprun {

// Typed memory that a caller owns. It must stay alive and, unless it is only read, untouched until the operation is
// done.
struct ConstSpan {
  const void* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::float32;
  std::size_t bytes() const { return count * size_of(dtype); }
};
struct Span {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::float32;
  std::size_t bytes() const { return count * size_of(dtype); }
  operator ConstSpan() const { return {data, count, dtype}; }
};
template <class T>
Span span_of(std::vector<T>& values) {
  return {values.data(), values.size(), dtype_of<T>};
}

enum class ReduceOp { sum, average, product, min, max };

struct OpOptions {
  std::optional<std::chrono::milliseconds> timeout;  // of this operation; none: the group's
};

// A set of ranks that communicate. Every rank calls the same operations in the same order; each call returns at once
// with a Work, and operations are carried out in the order of the calls (sends and receives beside it). The core below
// is what a back end implements; what can be built on it is a free function in collectives.h.
//
// Errors. A wrong argument throws Errc::usage at the call and harms nothing. Everything else comes out of Work::wait(),
// within the operation's timeout (which runs from when the operations before it are done) and a few heartbeats:
//   peer_lost        a peer died, froze, was cut off or left; names the rank (process and host, where known)
//   timeout          a peer that lives has not come; names the rank and what it does instead
//   mismatch         the ranks called different operations; names both
//   connection_lost  the network between living ranks, or the store, failed
//   aborted          this process called abort()
// After the first error the group is broken: every pending and later operation of every rank ends with that first
// cause. A new group under a new store prefix is the way on.
//
// Thread-safe, but the order of calls is the caller's business. Destroying a group whose operations are all done is a
// clean goodbye; destroying one with operations pending breaks it for the others. It never hangs.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;

  // In place: buffer := op over all ranks' buffers. Bit-identical at every rank.
  virtual WorkPtr allreduce(Span buffer, ReduceOp op, OpOptions options = {}) = 0;
  virtual WorkPtr broadcast(Span buffer, int root, OpOptions options = {}) = 0;
  // output: size() blocks of input.count, in rank order.
  virtual WorkPtr allgather(ConstSpan input, Span output, OpOptions options = {}) = 0;
  // input: size() blocks of output.count; block r, reduced over all ranks, ends at rank r.
  virtual WorkPtr reduce_scatter(ConstSpan input, Span output, ReduceOp op, OpOptions options = {}) = 0;
  virtual WorkPtr barrier(OpOptions options = {}) = 0;
  // Matched by (sender, receiver, tag), in order.
  virtual WorkPtr send(ConstSpan buffer, int destination, int tag, OpOptions options = {}) = 0;
  virtual WorkPtr recv(Span buffer, int source, int tag, OpOptions options = {}) = 0;

  // Frees every blocked call of this process, from any thread; they and all later ones end with this reason
  // (Errc::aborted), unless the group was broken before.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace ddprun
