#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/agent_relay.h"
#include "rendezvous/succession/electorate.h"

// The interface between an agent and a job's rendezvous, whatever the back end (static, c10d, etcd).
//
// A *node* is a host's agent with its workers. A *round* is one agreed membership. Its *generation* is the job-wide
// number of the round, from 0.
namespace ddprun {

// The round that a rejoining node was last in. A restarted server continues from the highest generation reported, or
// with that round itself, if its workers still run on all of its nodes.
struct FormerRound {
  std::int64_t generation = 0;
  int group_rank = 0;
  int restarts_used = 0;
  int nodes = 0;            // the number of its nodes if this node's workers of it still run; otherwise 0
  std::string first;        // if so, the id of its group rank 0, which tells rounds of equal generations apart
  std::string master_addr;  // and the address of its workers' store
  std::uint16_t master_port = 0;
  std::uint64_t group_generation = 0;  // and Round::group_generation
  std::vector<std::string> workers;    // RoundMember::workers of this node
  std::uint16_t store_port = 0;        // what it has passed to Rendezvous::ready()
  bool done = false;                   // its workers have ended by themselves, which no server may have been told
};

// The information that a node sends when it joins.
struct NodeInfo {
  std::string id;                    // unique to one agent; a node that rejoins with it gets its old rank back
  std::string host;                  // for messages
  std::string address;               // that other nodes dial (--local_addr); empty: its session's peer address
  int nproc = 1;                     // number of workers
  std::optional<int> node_rank;      // static: its rank; otherwise a preference
  std::vector<std::string> command;  // the workers' program and arguments as typed, for messages
  std::optional<FormerRound> former;
  std::uint16_t port = 0;  // at which its agent listens for elections; 0: it takes part in none
  bool serves = false;     // the server that it joins is in its process
};

// The options that all nodes of a job have to share. The first node to join sets them; a node with others is refused
// with a message that names the option.
struct JobPolicy {
  std::string run_id = "none";
  std::string program;  // its name, as "train.cfg": distinguishes two jobs of one id; an empty one matches any
  int min_nodes = 1;
  int max_nodes = 1;
  bool fixed_ranks = false;  // static: min = max, and every node has a node_rank; set by the back end
  bool agent_store = true;   // an agent serves the workers' store; otherwise worker rank 0 does
  bool mpi = false;          // the workers of all nodes are one MPI job, which the agents serve
  int max_restarts = 0;      // job-wide; failures count, membership changes do not
  int spares = 0;            // nodes beyond max_nodes that stand by, each with a process for each of its local ranks
  // The time to wait for more nodes once min_nodes have joined.
  std::chrono::milliseconds last_call{std::chrono::seconds(30)};
  std::chrono::milliseconds join_timeout{std::chrono::seconds(600)};
  std::chrono::milliseconds keep_alive_interval{std::chrono::seconds(1)};
  int keep_alive_max_attempt = 5;  // missed heartbeats, by the receiver's clock, after which a node counts as lost

  // The time without a sign of the other side after which a node counts as lost to the server, and the server to it.
  std::chrono::milliseconds heartbeat_timeout() const { return keep_alive_interval * keep_alive_max_attempt; }
  // The time without a message of its server after which a node may support another one (succession/).
  std::chrono::milliseconds support_bound() const { return std::min(2 * keep_alive_interval, heartbeat_timeout()); }

  // Returns whether a job with too few nodes left waits for a replacement. A fixed number of nodes without restarts
  // or spares means that nothing may be started twice, so the loss of a node ends the job.
  bool may_be_replaced() const { return min_nodes < max_nodes || max_restarts > 0 || spares > 0; }
};

struct RoundMember {
  std::string node_id;
  std::string host;
  std::string address;     // never empty here
  std::uint16_t port = 0;  // NodeInfo::port
  int group_rank = 0;      // rank of the node among nodes
  int nproc = 1;
  int first_rank = 0;  // global rank of its local rank 0
  // The names of its workers in their process group (recovery/recovery_keys.h), by local rank; none before the start.
  std::vector<std::string> workers = {};
};

// The difference between the commands of a round's nodes (membership/node_commands.h).
struct CommandDifference {
  std::vector<std::string> first;   // the command of group rank 0
  int other = 0;                    // the first group rank with another command
  std::vector<std::string> others;  // that command
  int count = 0;                    // number of nodes whose command is not that of group rank 0
};

struct Round {
  std::int64_t generation = 0;
  int restarts_used = 0;             // job-wide
  int self = 0;                      // index of this node in members
  std::vector<RoundMember> members;  // by group_rank
  int world_size = 0;
  std::optional<CommandDifference> commands;  // set if not all nodes run the same command
  std::string master_addr;                    // host of the workers' store; set when the round starts
  std::uint16_t master_port = 0;
  // The generation of its workers' process group: one more for each change of that group while the round runs.
  std::uint64_t group_generation = 0;
  // The version of its nodes as an electorate, and of the last one that was confirmed; none where no election is held.
  ElectorateVersion electorate, confirmed;

  std::string store() const { return format_host_port(master_addr, master_port); }
};

// A failed worker as its agent observed it.
struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  int group_rank = 0;
  std::string host;
  std::int64_t pid = 0;
  int exit_code = 0;         // 0 if a signal ended it
  int signal_number = 0;     // 0 if it exited
  std::int64_t time_us = 0;  // since the epoch; from the worker's error file, otherwise when its exit was observed
  std::string message;       // from the error file, if there is one
  std::string last_lines;    // the end of its standard error
  std::string error_file;    // path on its host; may be empty
  std::string cause;         // as its host's kernel reports it: "out of memory: ..."; empty: the exit code or signal
  std::string label;         // the worker's own name of its place, "pipeline 1, data 0, tensor 1"; may be empty
  bool consequence = false;  // it reports that it failed because it lost a peer
  bool usage_error = false;  // the user's mistake, found at start-up; message is the sentence to print
};

// The other workers of a node that reports failed ones.
enum class Survivors : std::uint8_t {
  stopped,  // the node stops them
  run,      // they run, and so may the whole job's, with replacements for the failed ones; otherwise all are restarted
  run_or_end,  // does what run does, but otherwise the job ends (--restart=failed)
};

// The training as a worker reports it: the whole job's and, from lateness on, its rank's. An unknown number is NaN.
struct TrainingReport {
  std::int64_t step = 0;  // the last one done
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  // 1 is the first
  double loss = 0;
  double samples_per_s = 0;
  double seconds_left = 0;
  double lateness = 0;      // seconds a step that this rank takes longer on its own than the median of all ranks
  double step_seconds = 0;  // seconds of a step, the mean at this rank
  double data = 0;          // shares of that time, 0 .. 1
  double compute = 0;
  double communication = 0;
};

// The state of one worker, reported while the round lasts.
struct WorkerReport {
  enum class State : std::uint8_t { running, stopped, ended };  // stopped: by SIGSTOP and the like
  int local_rank = 0;
  std::int64_t pid = 0;
  State state = State::running;
  int exit_code = 0;                            // if it has ended
  int signal_number = 0;                        // the signal that ended or stopped it
  std::optional<TrainingReport> training = {};  // nullopt: the worker has reported nothing, or nothing new
};

// The use of a node's machine, in bytes and bytes a second.
struct NodeUsage {
  int processors = 0;
  double busy = 0;  // number of busy processors
  std::int64_t memory = 0;
  std::int64_t memory_used = 0;
  double received = 0;  // by all network interfaces but the loopback interface
  double sent = 0;
  std::int64_t shared_memory = 0;  // size of /dev/shm
  std::int64_t shared_memory_used = 0;
};

// The report of a node about itself while a round lasts.
struct NodeReport {
  std::vector<WorkerReport> workers;  // those that have changed
  // Workers that this node replaced by its own decision, in all rounds; they count as restarts.
  int replaced = 0;
  std::optional<NodeUsage> usage = {};  // nullopt: nothing new
  // A node of the round: whether all of its workers train, and say that a process may stand by for one of them
  // (TrainingRecord). nullopt: nothing new.
  std::optional<bool> wants_standby = {};
  // A spare: whether all of its processes that stand by are ready. nullopt: nothing new.
  std::optional<bool> stands_by = {};
  // Group rank 0: the workers of the round, by name, that have announced in their store that they have got the state of
  // the training from others. Empty: nothing new.
  std::vector<std::string> got_state = {};
};

// The result of a job, the same on every node.
struct JobResult {
  bool success = false;
  int exit_code = 0;                    // exit code of ddprun: 0, the root cause's own, 128 + signal, or 1
  std::string reason;                   // one line
  std::vector<WorkerFailure> failures;  // the root cause first
};

// Events for an agent. Order within a round: RoundProposed, then this node calls ready(), then RoundStarted, or only
// RoundChanged for a node that joins a round that runs, which calls ready() then; while it runs, any number of
// RoundChanged and the four about replacements. After ContactBroken the next round event is another
// RoundProposed, or RoundResumed if this node has called keep_round(). A node that has left by ask_to_leave() gets no
// event of a round before it calls join() again.
struct RendezvousWaiting {  // a message for the user: what the rendezvous waits for, and which nodes are missing
  std::string text;
};
struct RoundProposed {  // stop the running workers, then call ready()
  Round round;          // master_addr not yet set
  std::string reason;   // "first round", "rank 3 on host b failed: SIGKILL; restart 1 of 3", "node c joined"
};
struct RoundStarted {  // all members are ready: start the workers
  Round round;
};
// Whether all workers of the round have announced that they can recover in their processes. Group rank 0 reports it
// (report_recoverable()), and all nodes of the round learn it.
struct WorkersRecoverable {
  std::int64_t generation = 0;
  bool able = false;
};
// This node, which has no part in the round, is a spare: start a process for each of its local ranks that makes itself
// ready to take the place of a worker (standby_socket.h). They stand by until this node joins a round or the job ends.
struct StandbyAsked {
  std::int64_t generation = 0;
  int world_size = 0;  // of that round
};
struct RecoveryAsked {  // call answer_recovery(): this node serves the store of the round's workers
  std::int64_t generation = 0;
};
struct WorkersReplaced {  // replace those of these workers that are this node's; all others keep their processes
  std::int64_t generation = 0;
  int restarts_used = 0;  // job-wide, these included
  std::vector<WorkerFailure> failures;
  std::uint64_t group_generation = 0;  // that begins with the replacements
};
// The round has other nodes from now on. A newcomer starts its workers, once those of earlier rounds have ended; all
// other nodes keep theirs, which have the ranks of this round. If the node that served the workers' store has gone,
// group rank 0 is one of those that stay, and serves another one, which is empty, at the port that it has passed to
// ready().
struct RoundChanged {
  Round round;
  std::vector<int> newcomers;  // their group ranks
  bool in_order = true;        // the workers of nodes that go leave after a step; otherwise they may have ended already
  std::string reason;

  bool joins(int group_rank) const { return std::ranges::find(newcomers, group_rank) != newcomers.end(); }
};
// Stop the workers: those that this node reported as failed are not replaced, or the round that this node has kept does
// not go on.
struct ReplacementRefused {
  std::int64_t generation = 0;
};
struct LeaveAnswered {  // the answer to ask_to_leave()
  std::string refusal;  // why this node stays; empty: it has left the round
  // The round goes on without this node, whose workers leave the others' process group after a step and end by
  // themselves. Otherwise stop them.
  bool round_goes_on = false;
};
struct JobEnded {  // stop the workers and exit with the job result's code
  JobResult result;
};
// The rendezvous was lost and is being redialled, and no round is valid: stop the workers. If `lease` is not zero, the
// node may call keep_round() within the handler instead, and leave the workers of its round running for as long: a new
// server waits for it. RoundResumed, RoundProposed, ReplacementRefused or another ContactBroken follows by then.
struct ContactBroken {
  std::string text;
  std::chrono::milliseconds lease{0};
  bool server_ended = false;  // it has said so: it begins no round of other nodes meanwhile
};
struct RoundResumed {  // the round that this node has kept goes on, at a server that was started meanwhile
  std::int64_t generation = 0;
  NodeSet electorate = {};  // of this server, as in Round
  ElectorateVersion confirmed;
};
struct ContactLost {  // the rendezvous was lost for good, or refused this node; the last event
  Error error;
};
using RendezvousEvent = std::variant<RendezvousWaiting, RoundProposed, RoundStarted, RoundChanged, WorkersRecoverable,
                                     StandbyAsked, RecoveryAsked, WorkersReplaced, ReplacementRefused, LeaveAnswered,
                                     JobEnded, ContactBroken, RoundResumed, ContactLost>;

// One agent's handle on the rendezvous.
// Ownership: the RendezvousBackend (backend.h) owns it. The destructor closes the connection as a crash would.
// Threads: all calls and the handler on the agent's event loop; no call blocks.
// Errors: calls throw nothing; ContactLost reports them.
class Rendezvous {
 public:
  using Handler = std::function<void(RendezvousEvent)>;

  virtual ~Rendezvous() = default;

  virtual void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) = 0;
  // This node runs no workers and can start generation. Group rank 0 passes the port of the workers' store: its own, or
  // the one reserved for worker 0. Another node passes the port of the one that it serves if that is lost;
  // 0: it serves none.
  virtual void ready(std::int64_t generation, std::uint16_t worker_store_port) = 0;
  // All local workers of generation exited with 0. JobEnded follows when those of all nodes have.
  virtual void report_success(std::int64_t generation) = 0;
  // All local workers of generation have exited, some with exit_preempted: they have saved their state. JobEnded with
  // that code follows when the workers of all nodes have exited.
  virtual void report_preempted(std::int64_t generation) = 0;
  // Reports what has changed on this node (for ddprun status). No event follows.
  virtual void report_node(std::int64_t generation, const NodeReport& report) = 0;
  // Stops the whole job at the request of `who`. JobEnded follows on every node.
  virtual void request_stop(const std::string& who) = 0;
  // Local workers failed. RoundProposed, WorkersReplaced or JobEnded follows on every node; WorkersReplaced only if
  // the survivors run, and ReplacementRefused before the others if they run in vain. Back ends other than c10d take
  // only Survivors::stopped.
  virtual void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures,
                              Survivors survivors) = 0;
  // The answer to RecoveryAsked: refusal is the reason why the round's workers cannot continue in their processes,
  // empty if they can. A refusal may also follow RoundChanged, and leads to another round.
  virtual void answer_recovery(std::int64_t /*generation*/, const std::string& /*refusal*/) {}
  // Group rank 0: whether all workers of the round have announced that they can recover. Report each change.
  // WorkersRecoverable follows on every node. c10d only: other back ends do nothing.
  virtual void report_recoverable(std::int64_t /*generation*/, bool /*able*/) {}
  // This node leaves its workers running although the contact is broken; call it while ContactBroken with a lease is
  // handled, and again with done = true once its workers have ended by themselves.
  virtual void keep_round(bool /*done*/) {}
  // The workers of a round that was kept, and has not been resumed, do not run any more. ContactBroken follows if there
  // is a session.
  virtual void give_up_round() {}
  // This node leaves on purpose (a signal). The other nodes see a change of membership.
  virtual void leave(const std::string& reason) = 0;
  // Asks to leave the round, on purpose and for a time, which is granted if the others are enough without this node.
  // LeaveAnswered follows. A node that has left learns of the end of the job (JobEnded), and calls join() to take part
  // again, or leave(). c10d only: other back ends do nothing.
  virtual void ask_to_leave(const std::string& /*reason*/) {}

  // workers_wait: whether workers of this node have lost their process group and wait for the members of the next. It
  // is asked while the server is silent: they do where its host is cut off. Call before join(). c10d only: other back
  // ends do not ask.
  virtual void on_silence(std::function<bool()> /*workers_wait*/) {}

  // Messages to and from the agents of other nodes (agent_relay.h), where agents hold sessions with one server.
  virtual bool relays() const { return false; }
  // Returns false if it cannot be sent: there is no session at present, or relays() is false.
  virtual bool relay(const RelayMessage& /*message*/) { return false; }
  // Call before join().
  virtual void on_relay(RelayHandlers /*handlers*/) {}
};

}  // namespace ddprun
