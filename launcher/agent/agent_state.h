#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// What the agent is to do, in order.
struct PrepareRound {  // Rendezvous::ready, once the workers' store is there if this node is to serve it
  std::int64_t generation = 0;
  bool leads = false;  // group rank 0: the workers meet at this node
};
struct StartWorkers {
  Round round;
};
struct StopWorkers {  // the signal, then a grace; AgentState::on_workers_stopped follows
  int signal_number = 0;
};
struct KillWorkers {};  // ends the grace
struct ReportSuccess {
  std::int64_t generation = 0;
};
struct ReportPreempted {
  std::int64_t generation = 0;
};
struct RequestStop {  // of the whole job
  std::string who;
};
struct ReportFailure {
  std::int64_t generation = 0;
  std::vector<WorkerFailure> failures;
};
struct LeaveJob {
  std::string reason;
};
struct Announce {  // a line for people
  enum class Kind { info, warning, error } kind = Kind::info;
  std::string text;
};
struct Finish {  // nothing of the job runs here any more
  int exit_code = 0;
  std::vector<WorkerFailure> failures;  // to be summed up, the root cause first
};
using AgentAction = std::variant<PrepareRound, StartWorkers, StopWorkers, KillWorkers, ReportSuccess, ReportPreempted,
                                 RequestStop, ReportFailure, LeaveJob, Announce, Finish>;
using AgentActions = std::vector<AgentAction>;

// The decisions of one node's agent: what follows from the rendezvous's events, from its workers' ends and from
// signals. No I/O and no clock. Nothing follows a Finish.
class AgentState {
 public:
  AgentActions on(const RendezvousEvent& event);
  // Workers of this node failed by themselves.
  AgentActions on_workers_failed(std::vector<WorkerFailure> failures);
  // All of this node's workers ended with 0 and are gone.
  AgentActions on_workers_succeeded();
  // All of this node's workers ended, and some of them with exit_preempted: they were told to make room.
  AgentActions on_workers_preempted();
  // After a StopWorkers: they are gone. made_room: they all ended as for on_workers_preempted().
  AgentActions on_workers_stopped(bool made_room = false);
  // A signal that means "end": the first stops gracefully, or leaves a stop that is under way its grace; any further
  // one kills.
  AgentActions on_signal(int signal_number);
  // Somebody wants the whole job to end (ddprun stop).
  AgentActions on_stop_request(const std::string& who);
  // This agent itself cannot go on.
  AgentActions on_fault(const Error& error);

 private:
  AgentActions on_event(const RendezvousWaiting& event);
  AgentActions on_event(const RoundProposed& event);
  AgentActions on_event(const RoundStarted& event);
  AgentActions on_event(const JobEnded& event);
  AgentActions on_event(const ContactBroken& event);
  AgentActions on_event(const ContactLost& event);
  AgentActions stop_workers(AgentActions before);
  AgentActions end_with(Finish end, AgentActions before, int stop_signal);
  // What this node saw fail and nobody has said yet, now that no verdict will name the cause.
  AgentActions untold_failures();

  std::optional<PrepareRound> proposed_;  // agreed, not started yet; without its members, who may be many
  std::optional<std::int64_t> current_;   // generation whose workers were started last
  std::string worker_store_;              // where the workers of the latest round met
  bool workers_there_ = false;
  bool stopping_ = false;
  std::vector<WorkerFailure> untold_;  // this node's, until a verdict or a new round names the job's root cause
  bool signalled_ = false;
  bool stopped_on_purpose_ = false;  // by a signal or a request
  std::optional<Finish> end_;        // decided; carried out once no worker is left
  bool finished_ = false;
};

}  // namespace ddprun
