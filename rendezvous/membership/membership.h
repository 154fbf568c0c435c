#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/stall_aware_clock.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/job_result.h"
#include "rendezvous/membership/flapping_hosts.h"
#include "rendezvous/membership/job_status.h"
#include "rendezvous/membership/membership_message.h"
#include "rendezvous/membership/membership_node.h"
#include "rendezvous/membership/membership_snapshot.h"
#include "rendezvous/membership/node_address.h"
#include "rendezvous/node_info.h"
#include "rendezvous/node_report.h"
#include "rendezvous/round.h"

namespace ddprun {

struct MembershipOptions {
  // The time to wait for further reports after the first failure of a round with several nodes: the root cause is the
  // failure observed first, not the one reported first.
  std::chrono::milliseconds settle{200};
  FlappingHosts::Options flapping;
  // Liveness is tracked by leases (etcd), not by heartbeats: missing heartbeats are ignored here. A lease ends later
  // than a connection, so failures are judged only once every other member of the round has sent a heartbeat since the
  // first.
  bool leased = false;
};

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
class Membership {
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

 private:
  using Phase = MembershipSnapshot::Phase;

  using Node = MembershipNode;
  using Nodes = std::map<std::string, Node>;

  std::optional<std::string> refusal(const NodeInfo& info, const JobPolicy& policy) const;
  void admit(Time now, const NodeInfo& info, const SessionAddresses& addresses);
  void report_command(const NodeInfo& info);
  std::string leave_refusal(const std::string& id) const;
  bool record_departure(Time now, const Node& node);
  MembershipMessages reject_flapping(Time now, const NodeInfo& info);
  void resume_after(const FormerRound& former);
  void await_round(Time now, const FormerRound& former);
  bool is_back(const Node& node) const;
  int nodes_back() const;
  bool can_resume() const;
  void resume_or_wait(Time now);
  void resume_round(Time now);
  void begin_resumed(Time now, const std::vector<std::string>& ids, const FormerRound& former);
  std::vector<std::string> nodes_of_kept_round() const;
  bool none_done(const std::vector<std::string>& ids) const;
  void resume_without_lost(Time now, std::vector<std::string> ids, const std::string& why);
  std::int64_t generation_here(const FormerRound& former) const;
  std::string flapping_text(const std::string& host) const;
  void record_activity(Time now, const std::string& node);
  Node* current_member(const std::string& node, std::int64_t generation, Phase phase);
  // The relation of failures that have been reported but not judged to the loss of a node.
  enum class Pending { consequence, cause };
  enum class Departure { lost, left, asked };  // asked: its workers leave the others' group after a step
  void remove(Time now, const std::vector<std::string>& gone, const std::string& why, Pending failures,
              Departure departure = Departure::lost);
  void change_round(Time now, const std::string& why, Pending failures = Pending::consequence);
  bool can_change_members() const;
  bool has_state(const RoundMember& member) const;
  bool is_state_kept_without(const std::string& id) const;
  bool lose_members(const std::string& why, Departure departure);
  void gain_members(const std::string& why);
  void change_members(std::size_t most, const std::string& why, Departure departure);
  void ask_spares();
  bool can_serve_store(const std::string& id) const;
  std::string store_host() const;
  bool place_store(const Round& former);
  void lead_with(const std::string& first, std::vector<std::string>& ids);
  void renumber_failures(const Round& former, const std::set<std::string>& joining);
  void start_forming(Time now, const std::string& why);
  void continue_forming(Time now);
  void propose(Time now, const std::string& why);
  void start_round(Time now);
  MembershipMessages report_completion(Time now, const std::string& node, std::int64_t generation, bool preempted);
  void finish_if_all_succeeded();
  std::string replacement_refusal(const RoundMember& member, const std::vector<WorkerFailure>& failures) const;
  void ask_whether_all_recover(const std::string& node);
  void replace_failed();
  void forget_training(const WorkerFailure& failure);
  void refuse_replacement(Time now, const std::vector<std::string>& nodes, const std::string& refusal,
                          std::optional<int> exit_code = std::nullopt);
  void await_judgement(Time now, Node& node);
  void judge_failures(Time now);
  int all_restarts() const;
  void forget_failures();
  void end_by_loss(const std::string& why, Pending failures);
  void end(JobResult result);

  void check_heartbeats(Time now);
  void check_awaited(Time now);
  void check_forming(Time now);
  void check_ready(Time now);
  void check_failures(Time now);
  void check_surplus(Time now);
  void drop_surplus(const std::vector<std::string>& ids);
  void announce(const std::vector<std::string>& ids);
  std::optional<Time> next_heartbeat_deadline(Time now) const;
  bool any_member_suspect() const;
  bool any_surplus() const;
  std::vector<std::string> surplus() const;
  bool all_members_heard_since(std::uint64_t event) const;

  bool has_min_nodes() const;
  bool is_full() const;
  int member_count() const;
  bool any_member_done() const;
  bool all_members(bool Node::*flag) const;
  StallAwareClock::Duration heartbeat_timeout() const;
  std::string waiting_text() const;
  std::string full_text() const;
  std::string missing_text() const;
  std::vector<std::string> all_nodes() const;
  std::vector<std::string> all_sessions() const;
  std::vector<std::string> select_members(std::size_t most) const;
  Round make_round(const std::vector<std::string>& ids, std::int64_t generation);
  JobStatus::Node status_of(Time now, const Node& node) const;
  void post(std::vector<std::string> to, MembershipMessage::What what);
  MembershipMessages take_messages();

  JobPolicy policy_;
  MembershipOptions options_;
  std::string policy_host_;  // the host of the node that set the policy
  Phase phase_ = Phase::forming;
  Nodes nodes_;
  std::map<std::string, int> former_ranks_;  // the ranks of nodes that left, in case they rejoin
  std::set<std::string> away_;               // the nodes that have left by leave_asked() and have a session
  FlappingHosts flapping_hosts_;
  std::uint64_t arrivals_ = 0;
  StallAwareClock liveness_clock_;
  Time last_tick_{};

  Round round_;  // the latest proposed
  std::int64_t next_generation_ = 0;
  std::uint16_t worker_store_port_ = 0;
  int restarts_used_ = 0;
  bool preempted_ = false;           // some node of the round has reported it
  std::set<std::string> got_state_;  // the workers of the round that have said so, by name
  bool recoverable_ = false;         // group rank 0 has reported it of all workers of the round that runs
  Time phase_since_{};

  // The round whose workers still run on some nodes, while this server, which has formed none, waits for the others.
  struct AwaitedRound {
    FormerRound round;
    Time until{};
  };
  std::optional<AwaitedRound> awaited_;
  bool gathering_ = false;  // between await_nodes() and continue_round()

  std::optional<Time> form_deadline_;   // set while forming with too few nodes
  std::optional<Time> last_call_;       // set while forming with enough nodes
  std::optional<Time> ready_deadline_;  // set while proposed
  std::optional<Time> judgement_due_;   // set while running, once a failure has been reported
  std::optional<Time> heartbeat_due_;   // when the node with the oldest heartbeat counts as lost
  std::uint64_t liveness_event_ = 0;
  std::vector<WorkerFailure> failures_;
  std::vector<std::string> asking_;    // the nodes of failures_, while it is unknown whether these are replaced
  bool ends_unless_replaced_ = false;  // one of them asked for that
  std::string last_change_;            // why the job is forming again; empty before the first round
  std::string announced_;              // the current waiting text, and its number
  std::uint64_t announcement_ = 0;
  MembershipMessages messages_;
};

}  // namespace ddprun
