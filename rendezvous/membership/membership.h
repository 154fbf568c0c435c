#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/rendezvous/backends/node_address.h"
#include "ddprun/rendezvous/membership/attentive_clock.h"
#include "ddprun/rendezvous/membership/job_status.h"
#include "ddprun/rendezvous/membership/membership_message.h"
#include "ddprun/rendezvous/membership/membership_snapshot.h"
#include "ddprun/rendezvous/membership/restless_hosts.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

struct MembershipOptions {
  // After the first failure of a round in which several nodes run: how long others may report theirs, so that the root
  // cause is the one observed first and not the one that the network brought first.
  std::chrono::milliseconds settle{200};
  RestlessHosts::Options restless;  // how often a host may come and go
  // Who is alive is known elsewhere, by leases (etcd): silence is not judged here, and since a lease ends later than a
  // connection, failures are judged only when every other member of the round has been heard after the first one.
  bool leased = false;
};

// One job's membership: who takes part, in which round, and how it ends. A state machine: events and the time in,
// messages out, each with a sentence saying why. No I/O, no clock, no threads; the owner calls tick() at the latest
// when next_tick() says.
//
//   forming --enough nodes--> proposed --all ready--> running --all succeeded, or failures beyond the budget--> ended
//
// Any change of membership in proposed or running leads to a proposal of the next generation, or back to forming when
// too few nodes are left. A round starts only when each of its members has said that it runs nothing any more, so
// nobody ever runs in two rounds. Events of another generation than the current one, and duplicates, change nothing.
//
// Nodes that come back to a server which was started anew bring their last round along: generations go on upward from
// the highest, restarts that were used stay used, ranks are kept.
class Membership {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  explicit Membership(JobPolicy policy, MembershipOptions options = {});
  // Goes on where another left off. Time that passed in between does not count.
  Membership(Time now, const MembershipSnapshot& snapshot, MembershipOptions options = {});
  MembershipSnapshot snapshot(Time now) const;

  // A node that is here already comes back: its old session has been superseded.
  MembershipMessages join(Time now, const NodeInfo& info, const JobPolicy& policy, const SessionAddresses& addresses);
  MembershipMessages ready(Time now, const std::string& node, std::int64_t generation, std::uint16_t worker_store_port);
  MembershipMessages success(Time now, const std::string& node, std::int64_t generation);
  // Like a success, but the job is to be started again later: exit_preempted once all have ended.
  MembershipMessages preempted(Time now, const std::string& node, std::int64_t generation);
  // Times in failures are by the server's clock.
  MembershipMessages failure(Time now, const std::string& node, std::int64_t generation,
                             const std::vector<WorkerFailure>& failures);
  MembershipMessages leave(Time now, const std::string& node, const std::string& reason);
  MembershipMessages session_closed(Time now, const std::string& node, const std::string& how);
  MembershipMessages beat(Time now, const std::string& node);
  // The server itself goes away. A job that does not wait for it to come back has its verdict now.
  MembershipMessages server_leaves(Time now, const std::string& why);
  // Somebody, named for people, wants the job to end.
  MembershipMessages stop(Time now, const std::string& who);
  // The state of some workers of a node, for status() alone.
  void workers(Time now, const std::string& node, std::int64_t generation, const std::vector<WorkerReport>& changed);
  MembershipMessages tick(Time now);
  Time next_tick() const;

  bool forming() const { return phase_ == Phase::forming; }
  bool ended() const { return phase_ == Phase::ended; }
  // A failure has been reported and is not judged yet.
  bool settling() const { return settled_at_.has_value(); }
  bool empty() const { return nodes_.empty(); }
  bool has(const std::string& node) const { return nodes_.contains(node); }
  const JobPolicy& policy() const { return policy_; }
  std::int64_t generation() const { return round_.generation; }
  int restarts_used() const { return restarts_used_; }
  JobStatus status(Time now) const;

 private:
  using Phase = MembershipSnapshot::Phase;

  struct Node {
    NodeInfo info;
    SessionAddresses addresses;
    std::uint64_t arrival = 0;
    Time joined{};
    AttentiveClock::Duration heard{};  // by attention_
    std::optional<int> rank;           // its group rank in the latest round it was part of
    std::int64_t rank_of = -1;         // that round's generation, as far as this server or the node knows it
    bool member = false;               // of round_
    bool ready = false;
    bool succeeded = false;
    bool failed = false;
    bool heard_since_failure = false;  // while settling: since the first one
    std::uint64_t told = 0;            // the announcement it has heard
    struct Worker {
      WorkerReport now;
      Time since{};
    };
    std::vector<Worker> workers;  // of the round, by local rank, as far as they have been told of
  };
  using Nodes = std::map<std::string, Node>;

  std::optional<std::string> refusal(const NodeInfo& info, const JobPolicy& policy) const;
  void admit(Time now, const NodeInfo& info, const SessionAddresses& addresses);
  bool count_out(Time now, const Node& node);
  MembershipMessages turn_away(Time now, const NodeInfo& info);
  void go_on_from(const FormerRound& former);
  std::string restless_text(const std::string& host) const;
  void heard_from(Time now, const std::string& node);
  Node* current_member(const std::string& node, std::int64_t generation, Phase phase);
  // What failures that have been reported, but not judged, are to a loss.
  enum class Pending { consequence, cause };
  void remove(Time now, const std::vector<std::string>& lost, const std::string& why, Pending failures);
  void reshape(Time now, const std::string& why, Pending failures = Pending::consequence);
  void begin_forming(Time now, const std::string& why);
  void continue_forming(Time now);
  void propose(Time now, const std::string& why);
  void start_round(Time now);
  MembershipMessages ended_well(Time now, const std::string& node, std::int64_t generation, bool preempted);
  void finish_if_all_succeeded();
  void judge_failures(Time now);
  void end_by_loss(const std::string& why, Pending failures);
  void end(Verdict verdict);

  void check_silence(Time now);
  void check_forming(Time now);
  void check_ready(Time now);
  void check_settled(Time now);
  void announce(const std::vector<std::string>& ids);
  std::optional<Time> next_silence(Time now) const;
  bool anyone_suspect() const;

  bool enough() const;
  int member_count() const;
  bool anyone_through() const;
  bool all_members(bool Node::*flag) const;
  AttentiveClock::Duration silence_bound() const;
  std::string waiting_text() const;
  std::string missing_text() const;
  std::vector<std::string> everyone() const;
  std::vector<std::string> select_members() const;
  Round make_round(const std::vector<std::string>& ids);
  JobStatus::Node status_of(Time now, const Node& node) const;
  void say(std::vector<std::string> to, MembershipMessage::What what);
  MembershipMessages take_messages();

  JobPolicy policy_;
  MembershipOptions options_;
  std::string founder_;  // host of the node that set the policy
  Phase phase_ = Phase::forming;
  Nodes nodes_;
  std::map<std::string, int> former_ranks_;  // of nodes that went away, should they come back
  RestlessHosts restless_;
  std::uint64_t arrivals_ = 0;
  AttentiveClock attention_;
  Time last_tick_{};

  Round round_;  // the latest proposed
  std::int64_t next_generation_ = 0;
  std::uint16_t worker_store_port_ = 0;
  int restarts_used_ = 0;
  bool preempted_ = false;  // some node of the round says so
  Time phase_since_{};

  std::optional<Time> form_deadline_;   // forming, too few nodes
  std::optional<Time> last_call_;       // forming, enough nodes
  std::optional<Time> ready_deadline_;  // proposed
  std::optional<Time> settled_at_;      // running, a failure has been reported
  std::optional<Time> silence_due_;     // a node may have been silent for too long by then
  std::vector<WorkerFailure> failures_;
  std::string last_change_;  // why the job is forming again; empty before the first round
  std::string announced_;    // what is waited for, and its number
  std::uint64_t announcement_ = 0;
  MembershipMessages messages_;
};

}  // namespace ddprun
