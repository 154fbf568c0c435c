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
#include "rendezvous/membership/membership_options.h"
#include "rendezvous/membership/membership_snapshot.h"
#include "rendezvous/membership/node_address.h"
#include "rendezvous/node_info.h"
#include "rendezvous/round.h"

namespace ddprun {

// The private half of Membership: its variables, and the transitions that several of its events share. Each is defined
// in the source of its topic, membership_rounds.cc for one.
class MembershipState {
 protected:
  using Time = std::chrono::steady_clock::time_point;
  using Phase = MembershipSnapshot::Phase;
  using Node = MembershipNode;
  using Nodes = std::map<std::string, Node>;
  // The relation of failures that have been reported but not judged to the loss of a node.
  enum class Pending { consequence, cause };
  enum class Departure { lost, left, asked };  // asked: its workers leave the others' group after a step

  MembershipState(JobPolicy policy, MembershipOptions options);

  // The ends of a job, its messages, and questions about its nodes: membership.cc.
  MembershipMessages report_completion(Time now, const std::string& node, std::int64_t generation, bool preempted);
  Node* current_member(const std::string& node, std::int64_t generation, Phase phase);
  void finish_if_all_succeeded();
  void end(JobResult result);
  bool has_min_nodes() const;
  bool is_full() const;
  int member_count() const;
  bool any_member_done() const;
  bool all_members(bool Node::*flag) const;
  std::vector<std::string> all_nodes() const;
  std::vector<std::string> all_sessions() const;
  void post(std::vector<std::string> to, MembershipMessage::What what);
  MembershipMessages take_messages();

  // Nodes that join: membership_admission.cc.
  void report_command(const NodeInfo& info);
  MembershipMessages reject_flapping(Time now, const NodeInfo& info);
  void admit(Time now, const NodeInfo& info, const SessionAddresses& addresses);
  std::int64_t generation_here(const FormerRound& former) const;
  void resume_after(const FormerRound& former);
  std::optional<std::string> refusal(const NodeInfo& info, const JobPolicy& policy) const;

  // Nodes that leave or are lost: membership_departures.cc.
  std::string leave_refusal(const std::string& id) const;
  bool record_departure(Time now, const Node& node);
  void remove(Time now, const std::vector<std::string>& gone, const std::string& why, Pending failures,
              Departure departure = Departure::lost);

  // A round, from the time that nodes are awaited for it to its start: membership_rounds.cc.
  void change_round(Time now, const std::string& why, Pending failures = Pending::consequence);
  void start_forming(Time now, const std::string& why);
  void continue_forming(Time now);
  void check_forming(Time now);
  void propose(Time now, const std::string& why);
  std::vector<std::string> select_members(std::size_t most) const;
  Round make_round(const std::vector<std::string>& ids, std::int64_t generation);
  void check_ready(Time now);
  void start_round(Time now);

  // A round that loses and gains nodes while it runs: membership_changes.cc.
  bool can_change_members() const;
  bool has_state(const RoundMember& member) const;
  bool is_state_kept_without(const std::string& id) const;
  bool lose_members(const std::string& why, Departure departure);
  void gain_members(const std::string& why);
  bool can_serve_store(const std::string& id) const;
  std::string store_host() const;
  void lead_with(const std::string& first, std::vector<std::string>& ids);
  bool place_store(const Round& former);
  void change_members(std::size_t most, const std::string& why, Departure departure);
  void renumber_failures(const Round& former, const std::set<std::string>& joining);

  // Failures of workers: membership_failures.cc.
  std::string replacement_refusal(const RoundMember& member, const std::vector<WorkerFailure>& failures) const;
  void ask_whether_all_recover(const std::string& node);
  void replace_failed();
  void forget_training(const WorkerFailure& failure);
  void refuse_replacement(Time now, const std::vector<std::string>& nodes, const std::string& refusal,
                          std::optional<int> exit_code = std::nullopt);
  void await_judgement(Time now, Node& node);
  void forget_failures();
  void check_failures(Time now);
  int all_restarts() const;
  void judge_failures(Time now);
  void end_by_loss(const std::string& why, Pending failures);

  // A round of an earlier server: membership_resume.cc.
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
  void check_awaited(Time now);

  // Heartbeats: membership_liveness.cc.
  void record_activity(Time now, const std::string& node);
  StallAwareClock::Duration heartbeat_timeout() const;
  void check_heartbeats(Time now);
  std::optional<Time> next_heartbeat_deadline(Time now) const;
  bool any_member_suspect() const;
  bool all_members_heard_since(std::uint64_t event) const;

  // Nodes without a part in a round: membership_waiting.cc, membership_spares.cc.
  void announce(const std::vector<std::string>& ids);
  void check_surplus(Time now);
  void drop_surplus(const std::vector<std::string>& ids);
  bool any_surplus() const;
  std::vector<std::string> surplus() const;
  std::string waiting_text() const;
  std::string missing_text() const;
  std::string full_text() const;
  std::string flapping_text(const std::string& host) const;
  void ask_spares();

  // Reports: membership_status.cc.
  JobStatus::Node status_of(Time now, const Node& node) const;

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
