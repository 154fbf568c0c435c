#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/rendezvous/membership/membership_message.h"
#include "tests/simulation/virtual_time.h"

namespace ddprun::testing {

// What an agent has come to, kept up to date by itself.
struct AgentFacts {
  std::string id;
  bool alive = true;
  bool on_its_way_out = false;  // a verdict, a signal, a lost contact
  std::optional<int> exit_code;
  Time disturbed_until{};                        // stopped or cut off: it need not hear anything
  std::pair<int, std::int64_t> heard{-1, -1};    // latest round proposed to it: job and generation
  std::pair<int, std::int64_t> started{-1, -1};  // latest round whose workers it started
};
using AgentFactsPtr = std::shared_ptr<AgentFacts>;

// Sees everything, and throws std::logic_error with a sentence when a promise is broken:
//   1. the ranks of a round are unique and dense, and a node that stays keeps its group rank
//   2. nobody runs in two rounds: a node starts workers when it has none, and no other member of the round has workers
//      of an earlier one; a round starts when each of its members has said that it is ready for this very round
//   3. everyone alive who can be reached learns each round, its start and the verdict
//   4. no more restarts than the budget, none without a failure, no verdict for a failure while budget is left
//   5. nothing follows a verdict, and everyone ends with its exit code (the bound in time: SimulatedJob)
//   6. no worker reads a key of another generation
// and that a node's session is never replaced by an earlier one.
class Referee {
 public:
  explicit Referee(VirtualTime& time) : time_(time) {}

  struct Counts {
    int proposals = 0, starts = 0, drops = 0, failures = 0, verdicts = 0, successes = 0, servers = 0, reads = 0;
    int rejoins = 0;     // sessions that agents lost and tried to get back into
    int superseded = 0;  // sessions replaced by a later one of the same node

    void add(const Counts& other);
  };
  Counts& counts() { return counts_; }

  void agent_began(const AgentFactsPtr& agent) { agents_[agent->id] = agent; }
  // The rendezvous itself hears nobody until then.
  void rendezvous_disturbed(Time until);

  // A job at the rendezvous; another one when its run id had become free.
  int job_began(const JobPolicy& policy);
  void node_joined(int job, const std::string& id);
  void came_back(int job, const FormerRound& former);
  void node_gone(int job, const std::string& id);
  // A session of this node takes the place of an earlier one: by the node's count of its attempts.
  void superseded(int job, const std::string& id, int earlier_attempt, int later_attempt);
  void said_ready(int job, const std::string& id, std::int64_t generation);
  void said_success(int job, const std::string& id, std::int64_t generation);
  void reported_failure(int job);
  void said(int job, const MembershipMessage& message);

  void workers_started(const AgentFacts& agent, int job, const Round& round);
  void workers_gone(const AgentFacts& agent);
  void agent_ended(const AgentFacts& agent, int job, bool by_verdict);
  // A worker of this generation has read what a worker of rank is to have written: "job/generation/rank".
  void read(const std::string& value, int job, std::int64_t generation, int rank);
  void counted(std::int64_t sum, int world_size);

 private:
  struct RoundFacts {
    Round round;
    std::set<std::string> members;
    std::set<std::string> ready, succeeded, started;
  };
  struct Job {
    JobPolicy policy;
    std::map<std::int64_t, RoundFacts> rounds;
    std::set<std::string> present;
    std::set<std::string> stayed;               // members of the latest round that have not gone since
    std::map<std::string, Time> session_ended;  // when one of this node last did
    int failures = 0;
    int restarts_before = 0;  // at servers before this one
    std::optional<Verdict> verdict;
  };

  void on(int number, const std::vector<std::string>& to, const RoundProposed& what);
  void on(int number, const std::vector<std::string>& to, const RoundStarted& what);
  void on(int number, const std::vector<std::string>&, const JobEnded& what);
  void on(int number, const std::vector<std::string>& to, const NodeDropped& what);
  void on(int number, const std::vector<std::string>& to, const JoinRefused& what);
  void on(int, const std::vector<std::string>&, const RendezvousWaiting&) {}
  void check_ranks(int number, const Job& job, const std::vector<std::string>& to, const Round& round) const;
  void check_budget(const Job& job, const Round& round) const;
  template <class Learnt>
  void soon(int number, const std::vector<std::string>& ids, const char* what, Learnt learnt);

  VirtualTime& time_;
  Counts counts_;
  Time rendezvous_disturbed_until_{};
  std::map<std::string, AgentFactsPtr> agents_;
  std::vector<Job> jobs_;
  std::map<std::pair<int, std::int64_t>, std::set<std::string>> running_;  // nodes with workers, by round
};

}  // namespace ddprun::testing
