#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/deadline.h"
#include "worker/comm/backends/hierarchical/chunks.h"
#include "worker/comm/backends/hierarchical/rail.h"
#include "worker/comm/bootstrap/host_map.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// The two levels as one rank sees them. A host's first ranks are its leaders. Rail i connects the i-th leaders of all
// hosts, in the order of the hosts.
struct Levels {
  const HostMap& hosts;
  int rank = 0;                // the rank in the whole group
  Transport* local = nullptr;  // between the ranks of this host; null where it has only one
  Rail* rail = nullptr;        // null if this rank is no leader
  int leaders = 1;             // the number of leaders of each host

  int host() const { return hosts.host_of(rank); }
  int local_rank() const { return hosts.local_rank_of(rank); }
  int local_size() const { return hosts.local_size(host()); }
  bool same_host(int other) const { return hosts.host_of(other) == host(); }
};

// Collectives in two levels. References the transports of the levels. Buffers move through in chunks: while the rails
// exchange one chunk, the ranks of a host reduce the next one and distribute the previous one. Calls block; one thread
// at a time makes them. Throws std::runtime_error with the message of the transport that failed; no memory of the call
// is in use then.
//
// allreduce       each leader reduces a slice over its host, the rails reduce the slices, each host gathers all slices
// broadcast       from the root to its host, by the rails to the other hosts, and there to their ranks
// reduce          on each host to a leader, then by that leader's rail to the root
// reduce_scatter, allgather (all hosts with the same number of ranks, in rank order)
//                 within each host for the ranks of every host, and by the rails between the hosts
class HierarchicalCollectives {
 public:
  explicit HierarchicalCollectives(const Levels& levels) : levels_(levels) {}

  // Returns whether the operation can be executed in two levels on these hosts.
  bool supports(const Operation& operation) const;
  void execute(const Collective& collective);

 private:
  static constexpr std::size_t rail_lag = 2;  // the number of chunks that the rails may be behind

  void dispatch(const Collective& collective);
  void allreduce(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void allgather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void barrier();

  template <class PrepareRail, class Distribute>
  void pipeline(const std::vector<Chunk>& chunks, PrepareRail prepare_rail, Distribute distribute);
  void reduce_to_leaders(const Chunk& chunk, Span whole, Span slice, ReduceOp op);
  void gather_from_leaders(const Chunk& chunk, Span slice, Span whole);

  bool leads(const Chunk& chunk) const { return levels_.rail && levels_.local_rank() < chunk.leaders; }
  bool all_lead(const Chunk& chunk) const { return levels_.local && chunk.leaders == levels_.local_size(); }
  Span own_slice(const Chunk& chunk, Span whole) const;
  Span slot_for(const Chunk& chunk, std::size_t number, DType dtype);
  Span scratch(std::size_t count, DType dtype);

  void within_host(Operation operation, ConstSpan input, Span output);
  Rail::Task between_hosts(Operation operation, ConstSpan input, Span output);

  const Levels levels_;
  std::uint64_t local_sequence_ = 0;
  std::uint64_t rail_sequence_ = 0;
  Deadline deadline_ = Deadline::never();
  std::array<std::vector<std::byte>, rail_lag + 1> slots_;  // slices of the chunks in progress
  std::vector<std::byte> scratch_;
};

}  // namespace ddprun::comm
