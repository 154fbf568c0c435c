#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/agent_relay.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/node_info.h"
#include "rendezvous/node_report.h"
#include "rendezvous/rendezvous_event.h"

namespace ddprun {

// The interface between an agent and a job's rendezvous, whatever the back end (static, c10d, etcd): one agent's handle
// on the rendezvous. A node is a host's agent with its workers.
//
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
