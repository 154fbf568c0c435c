#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/worker/comm/reduction.h"
#include "ddprun/worker/comm/registered_buffer.h"
#include "ddprun/worker/comm/span.h"
#include "ddprun/worker/comm/work.h"

namespace ddprun {

namespace comm {
struct Call;
class Transport;
}  // namespace comm

struct OpOptions {
  // Of this operation, 1 ms or more, as one that passes it breaks the group; none: the group's. To look once whether it
  // is done, ask Work::done().
  std::optional<std::chrono::milliseconds> timeout;
  // The call returns when the operation is done, and throws what it ends with. Where the back end can, the calling
  // thread carries it out itself, which saves a small operation the way to another thread and back.
  bool blocking = false;
};

// Of a recv that takes a message of its tag from whoever sent one; Work::source() tells from whom it came.
inline constexpr int any_source = -1;

// Elements of each rank's part, in rank order. Every rank gives the same ones, all_to_allv apart.
using Counts = std::vector<std::size_t>;

// A set of ranks that communicate. Every rank calls the same operations in the same order; each call returns at once
// with a Work, and operations are carried out in the order of the calls (sends and receives beside it). What can be
// built on them is a free function in collectives.h.
//
// Errors. A wrong argument throws Errc::usage at the call, what the back end has no form of Errc::unsupported; neither
// harms anything. Everything else comes out of Work::wait(), within the operation's timeout (which runs from when it
// begins, behind what is under way) and a few heartbeats:
//   peer_lost        a peer died, froze, was cut off or left; names the rank (process and host, where known)
//   timeout          a peer that lives has not come; names the rank and what it does instead
//   mismatch         the ranks called different operations, sizes, types or roots, or the ends of a message differ;
//                    names both; found without a timeout
//   connection_lost  the network between living ranks, or the store, failed
//   aborted          this process called abort()
// A rank that only gives (broadcast's root, reduce's others) may be done before the others have come; what it would
// have heard of them, the next operation tells it. After the first error the group is broken: every pending and later
// operation of every rank ends with that first cause. A new group is the way on: elastic_group.h forms it in the same
// processes.
//
// Thread-safe, but the order of calls is the caller's business. Destroying a group whose operations are all done is a
// clean goodbye; destroying one with operations pending breaks it for the others. It never hangs.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;

  // Memory. A buffer serves as input and output. Where input and output are given apart, they lie apart or, in place,
  // are the same: the same memory, or the input is this rank's own part of the output, or the output of the input.
  // Inputs are only read. "Parts" lie one behind the other in rank order: size() times as many elements as one has, or,
  // with counts, as many as they add up to. Counts may be 0. What is of use at the root only may be {} elsewhere.

  // output := the reduction of all ranks' inputs. Bit-identical at every rank.
  WorkPtr allreduce(Span buffer, Reduction reduction = {}, OpOptions options = {});
  WorkPtr allreduce(ConstSpan input, Span output, Reduction reduction = {}, OpOptions options = {});
  // The same at the root only. Of a buffer, the other ranks' are only read.
  WorkPtr reduce(Span buffer, int root, Reduction reduction = {}, OpOptions options = {});
  WorkPtr reduce(ConstSpan input, Span output, int root, Reduction reduction = {}, OpOptions options = {});
  // Every rank's buffer := the root's.
  WorkPtr broadcast(Span buffer, int root, OpOptions options = {});

  // output: all ranks' inputs as parts.
  WorkPtr allgather(ConstSpan input, Span output, OpOptions options = {});
  WorkPtr allgatherv(ConstSpan input, Span output, const Counts& counts, OpOptions options = {});
  // input: parts. Part r, reduced over all ranks, becomes rank r's output.
  WorkPtr reduce_scatter(ConstSpan input, Span output, Reduction reduction = {}, OpOptions options = {});
  WorkPtr reduce_scatterv(ConstSpan input, Span output, const Counts& counts, Reduction reduction = {},
                          OpOptions options = {});
  // The root's output: all ranks' inputs as parts.
  WorkPtr gather(ConstSpan input, Span output, int root, OpOptions options = {});
  WorkPtr gatherv(ConstSpan input, Span output, const Counts& counts, int root, OpOptions options = {});
  // The root's input: parts. Part r becomes rank r's output.
  WorkPtr scatter(ConstSpan input, Span output, int root, OpOptions options = {});
  WorkPtr scatterv(ConstSpan input, const Counts& counts, Span output, int root, OpOptions options = {});
  // input and output: parts. Part r of rank s's input becomes part s of rank r's output. With counts, each rank gives
  // its own: what it sends to and gets from each rank.
  WorkPtr all_to_all(ConstSpan input, Span output, OpOptions options = {});
  WorkPtr all_to_allv(ConstSpan input, const Counts& input_counts, Span output, const Counts& output_counts,
                      OpOptions options = {});
  // Done when every rank has called it.
  WorkPtr barrier(OpOptions options = {});

  // As one operation on many spans, of any types: small ones travel together. The same spans, in the same order, on
  // every rank.
  WorkPtr allreduce_coalesced(const std::vector<Span>& buffers, Reduction reduction = {}, OpOptions options = {});
  WorkPtr broadcast_coalesced(const std::vector<Span>& buffers, int root, OpOptions options = {});
  WorkPtr allgather_coalesced(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs,
                              OpOptions options = {});
  WorkPtr reduce_scatter_coalesced(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs,
                                   Reduction reduction = {}, OpOptions options = {});

  // Matched by (sender, receiver, tag), in order; tags begin at 0. A recv from any_source takes the next message of its
  // tag that no recv from a named source waits for.
  WorkPtr send(ConstSpan buffer, int destination, int tag, OpOptions options = {});
  WorkPtr recv(Span buffer, int source, int tag, OpOptions options = {});

  // Memory on which this group's operations cost least. Not collective: each rank allocates what and when it likes, and
  // the ranks tell each other with each operation. Where all of them use such memory, none is copied. Throws Errc::io.
  virtual RegisteredBuffer allocate(std::size_t bytes);

  // Why the group is broken, if it is.
  virtual std::optional<Error> failure() const = 0;
  // Frees every blocked call of this process, from any thread; they and all later ones end with this reason
  // (Errc::aborted), unless the group was broken before.
  virtual void abort(const std::string& reason) = 0;

  // The one entry that a back end implements, and that a group around another one passes on: begins a call whose
  // arguments are known to be right. A blocking one may already be over when it returns; the operations above wait for
  // it and throw.
  virtual WorkPtr start(const comm::Call& call) = 0;

  // What subgroups.h is made of. The group of those of this group's ranks, in this order; each of them calls it, under
  // a name that no other subgroup has. REQUIRES this rank to be among them. Errc::unsupported where there is none.
  virtual std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name);
  // How many were numbered before: for names that are alike at all ranks.
  std::uint64_t number_subgroup() { return subgroups_++; }
  // What elastic_group.h hands on to the next group, where that has a use for it.
  virtual std::shared_ptr<comm::Transport> reusable_transport() const { return nullptr; }

 private:
  WorkPtr begin(const comm::Call& call);

  std::atomic<std::uint64_t> subgroups_ = 0;
};

}  // namespace ddprun
