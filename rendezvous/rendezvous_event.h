#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/error.h"
#include "rendezvous/job_result.h"
#include "rendezvous/round.h"

namespace ddprun {

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

}  // namespace ddprun
