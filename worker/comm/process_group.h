#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "ddprun/worker/comm/reduction.h"
#include "ddprun/worker/comm/span.h"
#include "ddprun/worker/comm/work.h"

namespace ddprun {

namespace comm {
struct Call;
}

struct OpOptions {
  std::optional<std::chrono::milliseconds> timeout;  // of this operation; none: the group's
  // The call returns when the operation is done, and throws what it ends with. Where the back end can, the calling
  // thread carries it out itself, which saves a small operation the way to another thread and back.
  bool blocking = false;
};

// A set of ranks that communicate. Every rank calls the same operations in the same order; each call returns at once
// with a Work, and operations are carried out in the order of the calls (sends and receives beside it). What can be
// built on them is a free function in collectives.h.
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
  WorkPtr allreduce(Span buffer, Reduction reduction = {}, OpOptions options = {});
  // The root's buffer := op over all ranks' buffers; the others' are only read.
  WorkPtr reduce(Span buffer, int root, Reduction reduction = {}, OpOptions options = {});
  WorkPtr broadcast(Span buffer, int root, OpOptions options = {});
  // output: size() blocks of input.count, in rank order.
  WorkPtr allgather(ConstSpan input, Span output, OpOptions options = {});
  // input: size() blocks of output.count; block r, reduced over all ranks, ends at rank r.
  WorkPtr reduce_scatter(ConstSpan input, Span output, Reduction reduction = {}, OpOptions options = {});
  WorkPtr barrier(OpOptions options = {});
  // Matched by (sender, receiver, tag), in order.
  WorkPtr send(ConstSpan buffer, int destination, int tag, OpOptions options = {});
  WorkPtr recv(Span buffer, int source, int tag, OpOptions options = {});

  // Frees every blocked call of this process, from any thread; they and all later ones end with this reason
  // (Errc::aborted), unless the group was broken before.
  virtual void abort(const std::string& reason) = 0;

  // The one entry that a back end implements, and that a group around another one passes on: begins a call whose
  // arguments are known to be right. A blocking one may already be over when it returns; the operations above wait for
  // it and throw.
  virtual WorkPtr start(const comm::Call& call) = 0;

 private:
  WorkPtr begin(const comm::Call& call);
};

}  // namespace ddprun
