#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/progress/disagreement.h"
#include "rendezvous/progress/rank_record.h"
#include "worker/comm/health/group_failure.h"

// Decides whether a group has failed, and why, from the facts that the probes collected. Values and pure functions; no
// I/O, no clock.
namespace ddprun::comm {

// An operation of this rank that is in progress or failed.
struct Stall {
  static constexpr int all_ranks = -1, any_rank = -2;

  int rank = 0;                // this rank
  std::uint64_t sequence = 0;  // as in RankOperation
  OperationDescription operation;
  double seconds = 0;             // since it started
  std::string transport_error{};  // empty if the transport reported none

  // The rank that the operation depends on: one rank, or all_ranks for a collective, any_rank for a receive from any.
  int partner() const;
  // Returns whether it depends on that rank.
  bool concerns(int other) const;
  // The operation that the partner of a send or receive has to call.
  OperationDescription counterpart() const;
};

// Returns "allreduce(...) #3", or "send(...) of rank 1".
std::string name_operation(const Stall& stall);

// The records of some ranks, by rank.
using PeerRecords = std::map<int, RankRecord>;

// A rank's record at two moments some heartbeats apart; none where it was not published, or not readable.
struct Observation {
  std::optional<RankRecord> before;
  std::optional<RankRecord> now;
};

// The calls of ranks under the number of one collective.
struct CollectiveCalls {
  std::uint64_t sequence = 0;
  std::map<int, RankCall> calls;  // by rank, as far as they are known
  bool more_may_follow = false;   // other ranks may still publish theirs

  // Adds the call of the rank, if its record has it and it is not known yet. The rank may have called more since.
  void add(int rank, const RankRecord& record);
};
// Returns this rank's call alone. identity: "pid 42 on host b".
CollectiveCalls own_call(const Stall& own, const std::string& identity);

// A send or receive of this rank beside the record of its partner.
struct Comparison {
  Stall own;
  int peer = 0;
  RankRecord record;
};

// An operation of this rank, and the records of peers that left the group.
struct Departure {
  Stall own;
  PeerRecords left;
  std::chrono::milliseconds known_for{};  // the time since this rank noticed that every peer it depends on has left
};

// Ranks whose heartbeats may have stopped.
struct Silence {
  double seconds = 0;                         // the time between the two observations
  std::vector<Observation> observations;      // by rank
  std::map<int, std::string> process_states;  // "its process is stopped", of ranks on this host
};

// An operation of this rank that passed its deadline, or whose transport failed.
struct OverdueOperation {
  Stall own;
  std::vector<Observation> observations;   // by rank
  double seconds_between = 0;              // the time between the two observations
  bool observed_long_enough = false;       // true if that tells a stopped heartbeat from a late one
  bool cause_may_follow = false;           // the transport failed a moment ago: the store may still report a death
  bool calls_may_follow = false;           // or a moment ago: ranks may still publish what they call
  std::optional<std::string> store_error;  // set if the store did not answer; then there are no observations
};

// The findings of one pass over the probes. An empty field means that nothing was found.
struct Facts {
  int rank = 0;  // this rank
  int size = 1;  // the size of the group
  std::string identity;
  PeerRecords ended;                    // last records of ranks on this host whose processes ended
  std::optional<RankRecord> duplicate;  // under this rank's own key, but published by another process
  std::optional<Silence> silence;
  std::optional<CollectiveCalls> collective;  // one in which this rank and another differ
  std::vector<Comparison> comparisons;
  std::vector<Departure> departures;
  // The time that a message of a peer that left may still arrive; none if the transport fails such a receive itself.
  std::optional<std::chrono::milliseconds> linger_timeout;
  std::optional<OverdueOperation> overdue;
};

// Returns the failure that the facts prove, if any. The first that applies counts: a process that ended, a second
// process of this rank, missing heartbeats (peer_lost), ranks that called different operations (mismatch), peers that
// left while this rank depends on them (peer_lost). Then, for an overdue operation: the same once more, a rank that has
// not entered it (timeout), or else the network (timeout or connection_lost). Where ranks call different collectives,
// the majority decides which are odd: they are named first, once that is known or no further calls can follow.
std::optional<GroupFailure> diagnose(const Facts& facts);

// Returns whether every rank that the operation depends on is among those that left before they took part.
bool all_partners_left(const Stall& stall, const PeerRecords& records, int size);

// The process that serves the store, as far as this rank knows it.
struct StoreHost {
  std::optional<int> rank;  // the rank whose process serves the store, if one does
  std::string identity;     // "rank 0 (pid 42 on host b)"; empty if it is not known yet
  std::string neighbour;    // the identity of a rank on the store's host, where that is another host; else empty
};
// The failure of a rank that lost its connection to the store. cause: the connection's error.
GroupFailure diagnose_lost_store(const StoreHost& host, int rank, const std::string& identity,
                                 const std::string& cause);

}  // namespace ddprun::comm
