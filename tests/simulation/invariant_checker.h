#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/job_policy.h"
#include "rendezvous/membership/membership_message.h"
#include "rendezvous/node_info.h"
#include "tests/simulation/virtual_time.h"

namespace ddprun::testing {

// The state of an agent, updated by the agent.
struct AgentFacts {
  std::string id;
  bool alive = true;
  bool exiting = false;  // after a job result, a signal or a lost contact
  std::optional<int> exit_code;
  Time disturbed_until{};                               // stopped or cut off: it may miss messages
  std::pair<int, std::int64_t> proposed_round{-1, -1};  // latest round proposed to it: job and generation
  std::pair<int, std::int64_t> started{-1, -1};         // latest round whose workers it started
  std::optional<Time> kept_until{};                     // it has no server, and its workers run on until then
  std::uint64_t replacements = 0;                       // the generation of the group of that round's workers
  std::tuple<int, std::int64_t, std::uint64_t> changed{-1, -1, 0};  // the latest change of a round that it got
};
using AgentFactsPtr = std::shared_ptr<AgentFacts>;

// Observes all events of a simulation, and throws std::logic_error with the reason if one of these invariants is
// violated:
//   1. the ranks of a round are unique and dense, and a node that stays keeps its group rank
//   2. no node runs in two rounds: a node starts workers only if it has none, and no other member of the round has
//      workers of an earlier one, but newcomers to a round that runs, which stop them; a round starts when each of its
//      members has sent READY for this round
//   3. every agent that is alive and reachable learns of each round, its start and the job result
//   4. no more restarts than the budget, none without a failure, no job result for a failure while restarts are left
//   5. no message but an answer follows a job result, and every agent exits with its exit code (the time bound:
//   SimulatedJob)
//   6. no worker reads a key of another generation
//   7. a node's session is never replaced by an earlier one
//   8. failed workers are replaced once each and by their node; all nodes of a round count the same generations of its
//      workers' group, and each counts as a restart
//   9. a round that changes while it runs has the minimum of nodes or more, and the same first node; those that stay
//      have been in it, and keep their group ranks where there are still so many
//  10. no two generations train at once beyond the lease: a node whose server was lost stops its workers by the end of
//      its lease, unless their round goes on; a server that has been told of workers of an earlier one starts no other
//      round before the lease of each node of that round has ended; a round goes on with the members, ranks and
//      restarts that it had, and nowhere else do its workers run
class InvariantChecker {
 public:
  explicit InvariantChecker(VirtualTime& time) : time_(time) {}

  struct Counts {
    int proposals = 0, starts = 0, drops = 0, failures = 0, results = 0, successes = 0, servers = 0, reads = 0;
    int rejoins = 0;     // sessions that were lost and redialled
    int superseded = 0;  // sessions that a later one of the same node replaced
    int replaced = 0;    // workers that were replaced while the others ran
    int kept = 0;        // nodes that lost the server and left their workers running
    int resumed = 0;     // rounds that went on at another server
    int lost = 0;        // rounds that went on without a node
    int gained = 0;      // rounds that went on with another node
    int moved = 0;       // rounds that went on with another store of the workers
    int left = 0;        // nodes that asked to leave a round that went on

    void add(const Counts& other);
  };
  Counts& counts() { return counts_; }

  void agent_started(const AgentFactsPtr& agent) { agents_[agent->id] = agent; }
  // The rendezvous is stopped or unreachable until that time.
  void rendezvous_disturbed(Time until);

  // A new job begins at the rendezvous, or the next one with the same run id.
  int job_started(const JobPolicy& policy);
  void node_joined(int job, const std::string& id);
  void node_rejoined(int job, const std::string& id, const FormerRound& former);
  void node_left(int job, const std::string& id);
  // A session of this node replaces an earlier one; attempts are numbered by the node.
  void superseded(int job, const std::string& id, int earlier_attempt, int later_attempt);
  void ready_received(int job, const std::string& id, std::int64_t generation);
  void success_received(int job, const std::string& id, std::int64_t generation);
  void reported_failure(int job);
  void message_sent(int job, const MembershipMessage& message);

  void workers_started(const AgentFacts& agent, int job, const Round& round);
  // The node's workers run on in the round with other nodes.
  void round_changed(AgentFacts& agent, int job, const Round& round) const;
  // group_generation: that of the workers' process group. failed: the local ranks whose workers have failed.
  void workers_replaced(AgentFacts& agent, int job, std::int64_t generation, std::uint64_t group_generation,
                        const std::vector<int>& local_ranks, const std::set<int>& failed);
  // A node that has lost its server leaves its workers running until then.
  void workers_kept(const AgentFactsPtr& agent, Time until);
  void workers_ended(const AgentFacts& agent);
  void agent_ended(const AgentFacts& agent, int job, bool by_job_result);
  // A worker of this generation has read the key of rank, whose value is to be "job/generation/rank".
  void read(const std::string& value, int job, std::int64_t generation, int rank);
  // The workers of this generation that have counted themselves as done, of world_size.
  void counted(int job, std::int64_t generation, std::int64_t sum, int world_size) const;

 private:
  struct RoundFacts {
    Round round;
    std::set<std::string> members;
    std::set<std::string> ready, succeeded, started;
    std::set<std::string> joining;                          // newcomers that have not started their workers
    bool gained = false;                                    // it has had newcomers
    std::map<std::uint64_t, WorkersReplaced> replacements;  // by the generation of the group that began
    std::map<std::uint64_t, Round> versions;                // likewise; 0: as it was proposed
  };
  struct Job {
    JobPolicy policy;
    std::map<std::int64_t, RoundFacts> rounds;
    std::set<std::string> present;
    std::set<std::string> stayed;               // members of the latest round that have not left since
    std::map<std::string, Time> session_ended;  // time of the last end, by node
    int failures = 0;
    int restarts_before = 0;  // at servers before this one
    std::optional<JobResult> result;
    std::set<std::string> awaited;  // the members of the earlier rounds whose workers run, as nodes have said
  };

  void on(int number, const std::vector<std::string>& to, const RoundProposed& what);
  void on(int number, const std::vector<std::string>& to, const RoundStarted& what);
  void on(int number, const std::vector<std::string>& to, const RoundChanged& what);
  void on(int number, const std::vector<std::string>& to, const StandbyAsked& what);
  void on(int number, const std::vector<std::string>& to, const RecoveryAsked& what);
  void on(int number, const std::vector<std::string>& to, const WorkersReplaced& what);
  void on(int, const std::vector<std::string>&, const ReplacementRefused&) {}
  void on(int, const std::vector<std::string>&, const WorkersRecoverable&) {}
  void on(int number, const std::vector<std::string>& to, const RoundResumed& what);
  void on(int number, const std::vector<std::string>& to, const LeaveAnswered& what);
  void on(int number, const std::vector<std::string>&, const JobEnded& what);
  void on(int number, const std::vector<std::string>& to, const NodeDropped& what);
  void on(int number, const std::vector<std::string>& to, const JoinRefused& what);
  void on(int, const std::vector<std::string>&, const RendezvousWaiting&) {}
  void check_ranks(int number, const Job& job, const std::vector<std::string>& to, const Round& round) const;
  static void check_layout(const Job& job, const std::vector<std::string>& to, const Round& round);
  static void check_places(const Job& job, const Round& before, const Round& now, const std::string& first);
  // Returns the job in which the round was formed that these nodes have been in.
  int former_job(int number, std::int64_t generation, const std::vector<std::string>& members) const;
  void check_leases(const Job& job) const;
  void check_budget(const Job& job, const Round& round) const;
  template <class Learnt>
  void expect_delivery(int number, const std::vector<std::string>& ids, const char* what, Learnt learnt);

  VirtualTime& time_;
  Counts counts_;
  Time rendezvous_disturbed_until_{};
  std::map<std::string, AgentFactsPtr> agents_;
  std::vector<Job> jobs_;
  std::map<std::pair<int, std::int64_t>, std::set<std::string>> running_;  // nodes with workers, by round
};

}  // namespace ddprun::testing
