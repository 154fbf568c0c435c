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

#include "worker/comm/operation_timer.h"
#include "worker/comm/reduction.h"
#include "worker/comm/registered_buffer.h"
#include "worker/comm/span.h"
#include "worker/comm/work.h"

namespace ddprun {

namespace comm {
struct Call;
class Transport;
}  // namespace comm

struct OpOptions {
  // The timeout of this operation, 1 ms or more; if it is not set, the group's. An operation that exceeds it breaks the
  // group; to poll, use Work::done().
  std::optional<std::chrono::milliseconds> timeout;
  // If true, the call returns when the operation has finished, and throws its error. Where the back end allows it, the
  // calling thread executes the operation itself, which saves two thread switches.
  bool blocking = false;
  // A cudaStream_t, for memory of its device: the operation begins after all that is queued there. Without one it
  // follows only the default stream.
  void* after = nullptr;
  // The events to record, for a device's memory in a group of several ranks. They exist until the operation ends.
  OpEvents events = {};
};

// The source of a recv that accepts a message of its tag from any rank; Work::source() is the rank that sent it.
inline constexpr int any_source = -1;

// The numbers of elements of each rank's part, in rank order. They are the same at every rank, except in all_to_allv.
using Counts = std::vector<std::size_t>;

// A set of ranks that communicate: collectives, and messages between two of them. Every rank calls the same collectives
// in the same order; they are executed in that order, sends and receives independently of them. A call returns at once
// with a Work unless OpOptions::blocking is set. collectives.h has functions built on this class.
//
// Ownership: the caller owns the group, and the memory of an operation until that has finished; Works may outlive the
// group. The destructor leaves the group cleanly when all operations have finished; otherwise it breaks the group for
// the others. It does not hang.
//
// Threads: thread-safe; with several threads the caller has to provide the same order of calls at every rank.
//
// Errors: a call throws Errc::usage for an invalid argument and Errc::unsupported for what the back end does not
// implement; the group remains usable. Every other error comes out of Work::wait(), within the operation's timeout,
// which runs from when the operation starts, and a few heartbeats:
//   peer_lost        a peer died, froze, was cut off or left; names the rank (process and host, if known)
//   timeout          a peer that is alive did not call the operation; names the rank and what it does instead
//   mismatch         the ranks called different operations, sizes, types or roots, or the ends of a message differ;
//                    names both; does not wait for the timeout
//   connection_lost  the network between ranks that are alive, or the store, failed
//   aborted          this process called abort()
// The first error breaks the group: every pending and later operation of every rank ends with that error. A rank that
// only sends (broadcast's root, reduce's other ranks) may finish before its peers call the operation; an error it
// missed surfaces at its next operation. To recover, form a new group; elastic_group.h does so in the same processes.
//
// Devices: operations take memory of the host, or that of a CUDA device where the group was given one
// (CommConfig::device). All spans of a call, at all ranks, are memory of the host, or of each rank's device.
//
// Units: counts are in elements.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;

  // Memory. A buffer is input and output. A separate input and output must not overlap, unless the operation is in
  // place: they are the same memory, or one is this rank's own part of the other. Inputs are only read. "Parts" are
  // adjacent and in rank order: size() parts of equal size, or parts of the sizes in counts, which may be 0. A span
  // that only the root uses may be {} at the others.

  // output := the reduction of all ranks' inputs, which is bit-identical at every rank.
  WorkPtr allreduce(Span buffer, Reduction reduction = {}, OpOptions options = {});
  WorkPtr allreduce(ConstSpan input, Span output, Reduction reduction = {}, OpOptions options = {});
  // The root's output := the reduction of all ranks' inputs. The other ranks' buffers are only read.
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
  // input and output: parts. Part r of rank s's input becomes part s of rank r's output. Counts are each rank's own:
  // what it sends to and receives from each rank.
  WorkPtr all_to_all(ConstSpan input, Span output, OpOptions options = {});
  WorkPtr all_to_allv(ConstSpan input, const Counts& input_counts, Span output, const Counts& output_counts,
                      OpOptions options = {});
  // Finishes when every rank has called it.
  WorkPtr barrier(OpOptions options = {});

  // One operation on many spans, of any types: small ones are packed together. Every rank passes spans of the same
  // types and sizes in the same order.
  WorkPtr allreduce_coalesced(const std::vector<Span>& buffers, Reduction reduction = {}, OpOptions options = {});
  WorkPtr broadcast_coalesced(const std::vector<Span>& buffers, int root, OpOptions options = {});
  WorkPtr allgather_coalesced(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs,
                              OpOptions options = {});
  WorkPtr reduce_scatter_coalesced(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs,
                                   Reduction reduction = {}, OpOptions options = {});

  // Messages are matched by (sender, receiver, tag), in order; tags are 0 or more. A recv from any_source takes the
  // next message of its tag for which no recv from a named source waits.
  WorkPtr send(ConstSpan buffer, int destination, int tag, OpOptions options = {});
  WorkPtr recv(Span buffer, int source, int tag, OpOptions options = {});

  // Memory that this group's operations access at the least cost: if all ranks of an operation use such memory, the
  // back end need not copy it. This is not a collective: each rank allocates independently. Throws Errc::io.
  virtual RegisteredBuffer allocate(std::size_t bytes);

  // Returns zeroed memory of that CUDA device for this group's operations; for host_memory, what allocate() returns.
  // Throws Errc::unsupported where the group does not take memory of that device.
  virtual RegisteredBuffer allocate_on(std::int32_t device, std::size_t bytes);
  // Returns whether operations take memory of that device.
  virtual bool accepts(std::int32_t device) const { return device == host_memory; }

  // Returns the bytes that this rank's operations have sent over the network so far: 0 with shared memory. Thread-safe.
  virtual std::uint64_t bytes_sent() const { return 0; }

  // From now on, operations that the calling thread starts on memory of a device, in this group and in its subgroups,
  // get their events from the timer, which exists until the next call; with a null timer they get none. Groups of one
  // rank, and groups that take only memory of the host, time nothing.
  virtual void time_operations(OperationTimer* timer) { static_cast<void>(timer); }

  // Returns why the group is broken, if it is.
  virtual std::optional<Error> failure() const = 0;
  // Ends every pending operation of this process, and all later ones, with Errc::aborted and this reason, unless the
  // group is broken already. Any thread may call it.
  virtual void abort(const std::string& reason) = 0;

  // Returns whether each element of a reduction gets the bits that it would get in any other place of a buffer of any
  // other size, for callers that execute a collective in pieces.
  virtual bool reduces_elements_alike(const comm::Call&) const { return false; }

  // Starts a call whose arguments have been checked; each back end implements it. A blocking call may have finished
  // when it returns; the operations above wait for it and throw its error.
  virtual WorkPtr start(const comm::Call& call) = 0;

  // For subgroups.h: forms the group of these ranks, in this order. Each of them calls it, with a name that no other
  // subgroup has. REQUIRES: this rank is among them. Throws Errc::unsupported when the back end has no subgroups.
  virtual std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name);
  // Returns the number of subgroups made before, for a name that is the same at all ranks.
  std::uint64_t number_subgroup() { return subgroups_++; }
  // For elastic_group.h: the transport from which the next group may derive its own; null if there is none.
  virtual std::shared_ptr<comm::Transport> reusable_transport() const { return nullptr; }

 private:
  WorkPtr run(const comm::Call& call);

  std::atomic<std::uint64_t> subgroups_ = 0;
};

}  // namespace ddprun
