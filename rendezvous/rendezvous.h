#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"

// How one node's agent takes part in the job's membership, whatever the back end (static, c10d, etcd). Values and one
// narrow interface; no Asio. Words: a *node* is a host's agent with its workers; a *round* is one agreed membership;
// its *generation* is job-wide, 0 first, one more each round.
namespace ddprun {

// What a node that comes back knows of the round it was last part of. The server may not know it: one that was started
// anew goes on from the latest that it hears.
struct FormerRound {
  std::int64_t generation = 0;
  int group_rank = 0;
  int restarts_used = 0;
};

// What a node says of itself when it joins.
struct NodeInfo {
  std::string id;                // unique and lasting for one agent: a node that rejoins with it gets its old rank back
  std::string host;              // for people
  std::string address;           // as others should dial it (--local_addr); empty: the address its session came in on
  int nproc = 1;                 // workers it starts
  std::optional<int> node_rank;  // static: its rank; c10d: a wish
  std::optional<FormerRound> former;
};

// What all nodes of a job have to agree on. The first node to join sets it; one that differs is refused by name.
struct JobPolicy {
  std::string run_id = "none";
  std::string program;  // what the job runs ("train.cfg"): tells two jobs of one id apart; empty compares equal to any
  int min_nodes = 1;
  int max_nodes = 1;
  bool fixed_ranks = false;  // static: min = max, every node brings its node_rank; set by the back end
  bool agent_store = true;   // an agent serves the workers' store; otherwise worker rank 0 does
  int max_restarts = 0;      // job-wide: failures count, membership changes do not
  std::chrono::milliseconds last_call{
      std::chrono::seconds(30)};  // after min_nodes have come, how long to wait for more
  std::chrono::milliseconds join_timeout{std::chrono::seconds(600)};
  std::chrono::milliseconds keep_alive_interval{std::chrono::seconds(1)};
  int keep_alive_max_attempt = 5;  // missed beats, by the receiver's clock, before a node counts as lost

  // Whether a job that has lost a node it cannot do without waits for another in its place. A fixed number of nodes and
  // no restarts mean that nothing is to be started twice: there the loss is the job's end.
  bool may_be_replaced() const { return min_nodes < max_nodes || max_restarts > 0; }
};

struct RoundMember {
  std::string node_id;
  std::string host;
  std::string address;  // never empty here
  int group_rank = 0;   // of the node among nodes
  int nproc = 1;
  int first_rank = 0;  // global rank of its local rank 0
};

struct Round {
  std::int64_t generation = 0;
  int restarts_used = 0;             // failures so far, job-wide
  int self = 0;                      // index of this node in members
  std::vector<RoundMember> members;  // in order of group_rank
  int world_size = 0;
  std::string master_addr;  // where the workers' store listens; set when the round starts
  std::uint16_t master_port = 0;

  std::string store() const { return format_host_port(master_addr, master_port); }
};

// A worker's end as its agent saw it.
struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  int group_rank = 0;
  std::string host;
  std::int64_t pid = 0;
  int exit_code = 0;         // as the process gave it; 0 when signalled
  int signal_number = 0;     // 0 when it exited by itself
  std::int64_t time_us = 0;  // since the epoch, when it was noticed, or as the worker's error file says
  std::string message;       // from the error file, or what is known
  std::string last_lines;    // of its standard error
  std::string error_file;    // path on its host, empty if none
  std::string cause;         // what happened, as its host knows it: "out of memory: ..."; empty: the code or the signal
  bool consequence = false;  // it failed because of another and says so (it lost a peer)
  bool usage_error = false;  // the user's mistake, found at its start; message is the sentence to print
};

// What an agent tells of one of its workers while the round lasts.
struct WorkerReport {
  enum class State : std::uint8_t { running, stopped, ended };  // stopped: by a signal, until another continues it
  int local_rank = 0;
  std::int64_t pid = 0;
  State state = State::running;
  int exit_code = 0;      // ended: as the process gave it
  int signal_number = 0;  // ended: by this signal; stopped: likewise
};

// How a job ended, the same at every node.
struct Verdict {
  bool success = false;
  int exit_code = 0;                    // for ddprun itself: 0, the root cause's own, 128 + signal, 1
  std::string reason;                   // one line
  std::vector<WorkerFailure> failures;  // the root cause (first observed, job-wide) first
};

// What an agent hears. Order of one round: proposed -> (this node: ready()) -> started. After ContactBroken the next
// thing heard of a round is another proposal.
struct RendezvousWaiting {  // for people: what is waited for, and who is missing
  std::string text;
};
struct RoundProposed {  // agreed by the members; each now stops what it runs, then says ready()
  Round round;          // master_addr not yet set
  std::string reason;   // "first round", "rank 3 on host b failed: SIGKILL; restart 1 of 3", "node c joined"
};
struct RoundStarted {  // all members are ready: start the workers
  Round round;
};
struct JobEnded {  // stop what runs and leave with the verdict
  Verdict verdict;
};
struct ContactBroken {  // contact is lost for now, and tried for again: no round holds here any more; stop what runs
  std::string text;
};
struct ContactLost {  // the rendezvous itself is gone, or refused us; nothing more follows
  Error error;
};
using RendezvousEvent =
    std::variant<RendezvousWaiting, RoundProposed, RoundStarted, JobEnded, ContactBroken, ContactLost>;

// One agent's handle on the rendezvous. All calls and the handler run on the agent's one event loop; no call blocks.
class Rendezvous {
 public:
  using Handler = std::function<void(RendezvousEvent)>;

  virtual ~Rendezvous() = default;  // leaves without a word, as a death would

  virtual void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) = 0;
  // This node runs nothing any more and can start generation. Group rank 0 names the port of the store that the workers
  // meet at: its own, or the one it keeps free for worker 0.
  virtual void ready(std::int64_t generation, std::uint16_t worker_store_port) = 0;
  // All local workers of generation ended with 0; JobEnded follows when every node's have.
  virtual void report_success(std::int64_t generation) = 0;
  // All local workers of generation have ended, and some with exit_preempted: their state is saved, and the job is to
  // be started again later. JobEnded follows when every node's have ended, with that code.
  virtual void report_preempted(std::int64_t generation) = 0;
  // The state of these local workers has changed; for those who ask (ddprun status). Nothing follows.
  virtual void report_workers(std::int64_t generation, const std::vector<WorkerReport>& changed) = 0;
  // Somebody asks for the end of the whole job. JobEnded follows, here and everywhere.
  virtual void request_stop(const std::string& who) = 0;
  // A local worker failed. RoundProposed or JobEnded follows, here and everywhere.
  virtual void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures) = 0;
  // This node goes away on purpose (a signal): a membership change for the others.
  virtual void leave(const std::string& reason) = 0;
};

}  // namespace ddprun
