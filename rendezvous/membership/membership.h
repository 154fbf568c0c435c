#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/job_policy.h"
#include "rendezvous/job_result.h"
#include "rendezvous/membership/job_status.h"
#include "rendezvous/membership/membership_message.h"
#include "rendezvous/membership/membership_options.h"
#include "rendezvous/membership/membership_snapshot.h"
#include "rendezvous/membership/membership_state.h"
#include "rendezvous/membership/node_address.h"
#include "rendezvous/node_info.h"
#include "rendezvous/node_report.h"
#include "rendezvous/round.h"

namespace ddprun {

// The membership of one job: which nodes take part in which round, and how the job ends. A state machine: events and
// the time go in, messages come out, each with a sentence that gives the reason.
//
//   forming --enough nodes--> proposed --all ready--> running --all succeeded, or failures beyond the budget--> ended
//
// A change of membership in proposed or running leads to a proposal of the next generation, or back to forming if too
// few nodes are left. A round starts when every member has reported that it runs no workers, so no node ever runs in
// two rounds. Events of another generation and duplicates are ignored.
//
// While a round runs, workers that have failed are replaced one by one, and all others keep their processes, if their
// node let its other workers run, the budget allows it, and the node of group rank 0, to whose store workers announce
// that they can recover, answers that all have. Otherwise the failure leads to a proposal or to the end.
//
// If that node has reported that all workers can recover, a running round also loses and gains nodes while the workers
// of the others run: a node that is lost or has been granted its leave, if enough others stay, and a node that joins
// below the maximum. The round keeps its generation; the other nodes get new ranks. The store of its workers stays
// where it is, unless its node goes: then the next one by rank that has named a port in ready() becomes group rank 0
// and serves another store. If a node leaves without having asked, or no node has named a port, the change leads to a
// proposal.
//
// Nodes that rejoin at a new server report their last round: the next generation is above the highest reported, the
// restarts used are the most reported, and nodes keep their ranks. If some report that their workers still run, no
// round is proposed until all nodes of that round have done so, and the round goes on, or the workers of the others
// cannot run any more: a node stops them JobPolicy::heartbeat_timeout() after the last sign of a server.
//
// A node that comes to a full job waits as a spare if the number of nodes may vary, or the job has JobPolicy::spares.
// Otherwise it is dropped: at once if no node may be replaced, or as soon as every member has been heard since, for it
// may replace one whose loss has not been noticed yet. Spares change no round; JobPolicy::spares of them stand by.
//
// Ownership: a value. Threads: not thread-safe. Errors: none thrown. The owner calls tick() no later than next_tick().
class Membership : private MembershipState {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  explicit Membership(JobPolicy policy, MembershipOptions options = {});
  // Restores a snapshot. The time between snapshot and now does not count.
  Membership(Time now, const MembershipSnapshot& snapshot, MembershipOptions options = {});
  // The state for another process, which continues with it.
  MembershipSnapshot snapshot(Time now) const;

  // If the node has joined before, this replaces its old session.
  MembershipMessages join(Time now, const NodeInfo& info, const JobPolicy& policy, const SessionAddresses& addresses);
  // This server has been elected. Nodes join until continue_round(): those of the former server's round that can come
  // are there. It goes on without the others if their workers still run and can recover, and group rank 0 is there or
  // another node can serve the workers' store; otherwise there is another round. why is for messages.
  void await_nodes() { gathering_ = true; }
  MembershipMessages continue_round(Time now, const std::string& why);
  // The node runs no workers of an earlier round and is ready for this one, or joins it while it runs.
  // worker_store_port: of the workers' store if it has group rank 0, or if that node is lost; 0: it serves none, or the
  // endpoint's store serves the workers.
  MembershipMessages ready(Time now, const std::string& node, std::int64_t generation, std::uint16_t worker_store_port);
  // All workers of the node have exited with 0.
  MembershipMessages success(Time now, const std::string& node, std::int64_t generation);
  // Does what success() does, but the job ends with exit_preempted: it is to be started again later.
  MembershipMessages preempted(Time now, const std::string& node, std::int64_t generation);
  // Times in failures are by the server's clock.
  MembershipMessages failure(Time now, const std::string& node, std::int64_t generation,
                             const std::vector<WorkerFailure>& failures, Survivors survivors = Survivors::stopped);
  // The node's answer to RecoveryAsked: the reason why workers are not replaced; empty if they are. A refusal after a
  // change of the round, whose workers cannot go on, leads to a proposal.
  MembershipMessages recovery_answered(Time now, const std::string& node, std::int64_t generation,
                                       const std::string& refusal);
  // Whether all workers of the round can recover, as group rank 0 reports it. All members learn it.
  MembershipMessages recoverable(Time now, const std::string& node, std::int64_t generation, bool able);
  // The node leaves the job at once.
  MembershipMessages leave(Time now, const std::string& node, const std::string& reason);
  // The node asks to leave the round and to keep its session. It is granted while the round runs and the others are
  // enough without it. Until it joins again or its session ends, the node gets the job result and no other message.
  MembershipMessages leave_asked(Time now, const std::string& node, const std::string& reason);
  // The node's connection has closed without leave(); `how` appears in messages.
  MembershipMessages session_closed(Time now, const std::string& node, const std::string& how);
  // A heartbeat of the node has arrived.
  MembershipMessages beat(Time now, const std::string& node);
  // The server shuts down. Ends the job, unless the job can wait for a new server.
  MembershipMessages server_leaves(Time now, const std::string& why);
  // Another rendezvous uses the job's run id. Ends the job with exit_usage, unless it has formed a round before.
  MembershipMessages conflict(Time now, const std::string& why);
  bool has_formed() const { return next_generation_ > 0; }
  // Ends the job at a user's request; `who` appears in the job result.
  MembershipMessages stop(Time now, const std::string& who);
  // Updates what a node reports of itself, for status(), and for spares: once all workers of the round want it, they
  // stand by.
  MembershipMessages report(Time now, const std::string& node, std::int64_t generation, const NodeReport& report);
  // Acts on deadlines that have passed.
  MembershipMessages tick(Time now);
  Time next_tick() const;

  bool forming() const { return phase_ == Phase::forming; }
  bool ended() const { return phase_ == Phase::ended; }
  // Returns whether members must send heartbeats before a failure is judged or a surplus node is dropped.
  bool liveness_pending() const { return judgement_due_.has_value() || any_surplus(); }
  // Increases with every event after which all members have to send a heartbeat.
  std::uint64_t liveness_event() const { return liveness_event_; }
  // Returns whether it has no node, away ones included: then the job is over.
  bool empty() const { return nodes_.empty() && away_.empty(); }
  bool has(const std::string& node) const { return nodes_.contains(node); }
  const JobPolicy& policy() const { return policy_; }
  std::int64_t generation() const { return round_.generation; }
  // The round whose workers run; null if none do.
  const Round* running_round() const { return phase_ == Phase::running ? &round_ : nullptr; }
  int restarts_used() const { return restarts_used_; }
  JobStatus status(Time now) const;
};

}  // namespace ddprun
