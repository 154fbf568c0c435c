#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/worker/comm/backends/hierarchical/chunks.h"
#include "ddprun/worker/comm/backends/hierarchical/rail.h"
#include "ddprun/worker/comm/bootstrap/host_map.h"
#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

// What a rank sees of the two levels. The i-th leaders of all hosts are joined by rail i, in the order of the hosts.
struct Levels {
  const HostMap& hosts;
  int rank = 0;                // in the whole group
  Transport* local = nullptr;  // between the ranks of this host; none where there is one only
  Rail* rail = nullptr;        // none: this rank leads nothing
  int leaders = 1;             // of each host: its first ranks

  int host() const { return hosts.host_of(rank); }
  int local_rank() const { return hosts.local_rank_of(rank); }
  int local_size() const { return hosts.local_size(host()); }
  bool on_the_host_of(int other) const { return hosts.host_of(other) == host(); }
};

// Collectives in two levels. Buffers go through in pieces: while the rails are at one piece, the ranks of a host are at
// the next, and at the one before. Blocking; they throw what the transports throw, and then no memory of the call is in
// use any more.
//
// allreduce       every leader sums a slice over its host, the rails sum the slices, every host takes all slices
// broadcast       the root to its host, the rails to the other hosts, these to their ranks
// reduce          every host to its leader, that rail to the root
// reduce_scatter, allgather (hosts with as many ranks as each other, in rank order)
//                 within the hosts for every host's ranks, and on the rails for every host
class HierarchicalCollectives {
 public:
  explicit HierarchicalCollectives(const Levels& levels) : levels_(levels) {}

  // Whether there is such a form; else it has to be carried out otherwise.
  bool know(const Operation& operation) const;
  void execute(const Collective& collective);

 private:
  static constexpr std::size_t lag = 2;  // pieces that the rails may be behind

  void dispatch(const Collective& collective);
  void allreduce(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void allgather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void barrier();

  template <class Up, class Down>
  void pipeline(const std::vector<Chunk>& pieces, Up up, Down down);
  void combine(const Chunk& piece, Span whole, Span slice, ReduceOp op);
  void spread(const Chunk& piece, Span slice, Span whole);

  bool leads(const Chunk& piece) const { return levels_.rail && levels_.local_rank() < piece.leaders; }
  bool all_lead(const Chunk& piece) const { return levels_.local && piece.leaders == levels_.local_size(); }
  Span own_slice(const Chunk& piece, Span whole) const;
  Span slot_for(const Chunk& piece, std::size_t number, DType dtype);
  Span scratch(std::size_t count, DType dtype);

  void within_host(Operation operation, ConstSpan input, Span output);
  Rail::Task between_hosts(Operation operation, ConstSpan input, Span output);

  const Levels levels_;
  std::uint64_t local_steps_ = 0;
  std::uint64_t rail_steps_ = 0;
  Deadline deadline_ = Deadline::never();
  std::array<std::vector<std::byte>, lag + 1> slots_;  // slices of the pieces that are under way
  std::vector<std::byte> scratch_;
};

}  // namespace ddprun::comm
