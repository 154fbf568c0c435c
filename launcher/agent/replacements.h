#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/job_result.h"
#include "rendezvous/rendezvous_event.h"
#include "rendezvous/round.h"

namespace ddprun {

// The workers that are started again after a failure (--restart).
enum class RestartScope {
  automatic,  // those that failed, where the others can continue without a restart; otherwise all
  all,
  failed,  // those that failed; the job ends where the others cannot continue
};

struct RestartRules {
  RestartScope scope = RestartScope::automatic;
  bool single_workers = false;  // this agent can replace a worker while the others run
  bool asks_server = false;     // the rendezvous server decides about it: the job may have several nodes
  int max_restarts = 0;
};

// Replaces workers, while the others keep their processes. It names the members of the next generation of their process
// group.
struct ReplaceWorkers {
  std::uint64_t generation = 0;      // that of the process group within the round
  std::vector<int> local_ranks;      // the workers of this node to start again; others are those of other nodes
  std::vector<std::string> members;  // by rank, each a member_name()
  int restarts_used = 0;             // restarts of the job's budget that are used, these included
};

// The condition of a worker of this node at the time when some have failed.
struct WorkerCondition {
  bool able = false;     // it has announced that it can recover, and has not withdrawn; one that failed, too
  bool running = false;  // its process has not ended
  bool started = true;   // its program was executed
};

// The reason why failed workers are not replaced.
struct Refusal {
  std::string reason;       // empty: they are replaced
  bool by_workers = false;  // the workers cannot do what --restart=failed asks of them
};

// Decides which failures in a job of one node lead to replacements, and the budget of restarts that they use; in a job
// of several nodes the rendezvous server decides (membership.h), and this follows. Pure.
//
// A value. Threads: not thread-safe.
class Replacements {
 public:
  explicit Replacements(RestartRules rules = {}) : rules_(rules) {}

  // The workers of a round have been started, or those of this node, which joins a round that runs. The restarts that
  // the round has used are those of replace() too.
  void begin(const Round& round);
  // The round has other nodes, while the workers of this one run on.
  void change(const RoundChanged& change);
  // The names of the workers, by rank.
  const std::vector<std::string>& members() const { return members_; }

  // Returns the condition of the node's other workers to be reported with failures; stopped unless the rendezvous
  // server may decide on replacements. workers are all of this node, by local rank.
  Survivors survivors(const std::vector<WorkerFailure>& failures, const std::vector<WorkerCondition>& workers) const;
  // Returns why this node does not replace the workers. Empty workers: nothing is known about them.
  Refusal refusal(const std::vector<WorkerFailure>& failures, const std::vector<WorkerCondition>& workers) const;
  // Counts the failures as restarts.
  ReplaceWorkers replace(const std::vector<WorkerFailure>& failures);
  // The rendezvous server has decided that the failed workers, of whichever nodes, are replaced.
  ReplaceWorkers follow(const WorkersReplaced& decided);

  RestartScope scope() const { return rules_.scope; }
  int max_restarts() const { return rules_.max_restarts; }
  // The restarts that the whole job has used, replacements included.
  int restarts() const { return restarts_; }
  // The rendezvous server, which counts only rounds, would start another one, but no restart is left.
  bool budget_is_used() const { return replaced_ > 0 && restarts() >= rules_.max_restarts; }
  std::string budget_text() const;  // "all 3 restarts used"

 private:
  bool possible() const { return rules_.scope != RestartScope::all && rules_.single_workers; }
  // Returns why a failed worker of this node can be replaced by nobody.
  static std::string obstacle(const std::vector<WorkerFailure>& failures, const std::vector<WorkerCondition>& workers);
  ReplaceWorkers replace_in(std::uint64_t generation, const std::vector<WorkerFailure>& failures);

  RestartRules rules_;
  int group_rank_ = 0;  // of this node
  int restarts_ = 0;
  int replaced_ = 0;  // by replace(), in all rounds
  std::uint64_t generation_ = 0;
  std::vector<std::string> members_;  // by rank
};

}  // namespace ddprun
