#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/agent/replacements.h"
#include "rendezvous/job_result.h"
#include "rendezvous/rendezvous_event.h"
#include "rendezvous/round.h"

namespace ddprun {

// The actions that AgentState asks of the agent, to be executed in order.
struct PrepareRound {  // call Rendezvous::ready(), after the workers' store is up if this node serves one
  std::int64_t generation = 0;
  int nodes = 0;
  int world_size = 0;
  bool serves_store = false;  // true for group rank 0: the workers of the round connect to this node
  std::string address;        // of this node, as the other nodes dial it
};
struct StartWorkers {
  Round round;
};
// The workers of this node go on in a round with other nodes.
struct ChangeRound {
  RoundChanged change;
  std::vector<std::string> members;  // of the workers' process group, by rank; as far as this node knows them
};
// Keep a process ready for each local rank of this node, which takes part in no round yet.
struct StandBy {
  std::int64_t generation = 0;
  int world_size = 0;
};
struct StopWorkers {  // signal, grace period, SIGKILL; AgentState::on_workers_stopped() follows
  int signal_number = 0;
  // No worker of the round is replaced any more, for which those that have lost one wait.
  bool ends_round = false;
};
struct ReleaseWorkers {};  // they end by themselves; SIGKILL after the grace period; on_workers_stopped() follows
struct KillWorkers {};     // ends the grace period
struct ReportSuccess {
  std::int64_t generation = 0;
};
struct ReportPreempted {
  std::int64_t generation = 0;
};
struct RequestStop {  // asks the rendezvous to stop the whole job
  std::string who;
};
struct ReportFailure {
  std::int64_t generation = 0;
  std::vector<WorkerFailure> failures;
  Survivors survivors = Survivors::stopped;
};
struct AnswerRecovery {  // whether the round's workers have announced that they can recover
  std::int64_t generation = 0;
  std::string refusal;  // why they cannot, whatever they have announced; may be empty
};
struct KeepRound {  // Rendezvous::keep_round()
  bool done = false;
};
struct GiveUpRound {};  // Rendezvous::give_up_round()
struct LeaveJob {
  std::string reason;
};
struct AskToLeave {  // LeaveAnswered follows
  std::string reason;
};
struct JoinAgain {};  // after a leave that was granted
struct Announce {     // a log line
  enum class Kind { info, warning, error } kind = Kind::info;
  std::string text;
};
struct Finish {  // no worker runs any more: end the agent
  int exit_code = 0;
  std::vector<WorkerFailure> failures;  // for the summary, the root cause first
  std::string last_line;                // for the log, after the summary; may be empty
};
using AgentAction =
    std::variant<PrepareRound, StartWorkers, ChangeRound, ReplaceWorkers, StandBy, StopWorkers, ReleaseWorkers,
                 KillWorkers, ReportSuccess, ReportPreempted, RequestStop, ReportFailure, AnswerRecovery, KeepRound,
                 GiveUpRound, LeaveJob, AskToLeave, JoinAgain, Announce, Finish>;
using AgentActions = std::vector<AgentAction>;

// A node that leaves on request stops its workers as for a signal, and ends as after one or stays away until it joins
// again.
enum class Absence : std::uint8_t { for_good, for_a_time };

// The state machine of one node's agent: rendezvous events, ends of workers and signals in, actions out. No I/O and no
// clock. After Finish it returns no further action.
//
// When the contact to the rendezvous breaks, workers that can all recover run on while the lease of ContactBroken
// lasts: they have their own store. What they do meanwhile is reported once the round goes on. Other workers are
// stopped.
//
// A value. Threads: not thread-safe. Errors: none thrown; errors of the agent come in through on_fault().
class AgentState {
 public:
  // command is that of this node's workers, as in NodeInfo; for messages.
  explicit AgentState(std::vector<std::string> command = {}, RestartRules rules = {})
      : command_(std::move(command)), replacements_(rules) {}

  AgentActions on(const RendezvousEvent& event);
  // Workers of this node failed by themselves, or could not be started. workers is passed to Replacements::refusal().
  AgentActions on_workers_failed(std::vector<WorkerFailure> failures, const std::vector<WorkerCondition>& workers = {});
  // All of this node's workers exited with 0 and none of their processes is left.
  AgentActions on_workers_succeeded();
  // All of this node's workers have ended, at least one with exit_preempted: asked to stop, it saved its state.
  AgentActions on_workers_preempted();
  // No process of the workers is left after StopWorkers. preempted: they exited as for on_workers_preempted().
  AgentActions on_workers_stopped(bool preempted = false);
  // A signal that ends this node. The first stops the workers gracefully, or leaves a stop in progress its grace
  // period; any further one kills them. Where the round may go on without this node, it first asks to leave, unless its
  // workers take the signal as a request to save the state and stop all ranks (preempts): they get it.
  AgentActions on_signal(int signal_number, bool preempts = false);
  // A request to stop the whole job (ddprun stop).
  AgentActions on_stop_request(const std::string& who);
  // `who` requests that this node leaves the job. No action where its workers do not train.
  AgentActions on_leave_request(const std::string& who, Absence absence);
  // It requests that this node, which has left for a time, joins again. No action while its workers are still stopping.
  AgentActions on_join_request(const std::string& who);
  // An error of this agent that ends it.
  AgentActions on_fault(const Error& error);

  // Returns whether the workers run on when the contact breaks so.
  bool trains_on(const ContactBroken& event) const;
  // The names of the workers of the round, by rank, as far as this node knows them.
  const std::vector<std::string>& members() const { return replacements_.members(); }
  // Returns whether this node has left for a time and has not joined again.
  bool away() const { return away_; }

 private:
  AgentActions on_event(const RendezvousWaiting& event);
  AgentActions on_event(const RoundProposed& event);
  AgentActions on_event(const RoundStarted& event);
  AgentActions on_event(const RoundChanged& event);
  AgentActions on_event(const WorkersRecoverable& event);
  AgentActions on_event(const StandbyAsked& event);
  AgentActions on_event(const RecoveryAsked& event);
  AgentActions on_event(const WorkersReplaced& event);
  AgentActions on_event(const ReplacementRefused& event);
  AgentActions on_event(const LeaveAnswered& event);
  AgentActions on_event(const JobEnded& event);
  AgentActions on_event(const ContactBroken& event);
  AgentActions on_event(const RoundResumed& event);
  AgentActions on_event(const ContactLost& event);
  AgentActions start_workers(const Round& round);
  AgentActions join_round();
  AgentActions stop_outdated_workers(std::int64_t generation);
  bool is_done() const { return !workers_running_ && !reports_.empty(); }
  bool gets_store_when_done(const Round& round) const;
  void announce_store(const Round& round, AgentActions& actions);
  AgentActions replace_workers(const std::vector<WorkerFailure>& failures);
  AgentActions replace_as(ReplaceWorkers replace, const std::vector<WorkerFailure>& failures) const;
  bool trains(std::int64_t generation) const;
  AgentActions report(AgentAction what);
  AgentActions report_end(AgentAction what);
  void forget_reports();
  AgentActions end_by_failures(std::vector<WorkerFailure> failures, const std::string& why, int exit_code);
  bool may_leave_in_order() const;
  AgentActions end_by_signal(int signal_number);
  AgentActions stop_workers(AgentActions before);
  void release_workers(AgentActions& actions);
  AgentActions end_with(Finish end, AgentActions before, int stop_signal);
  // Announces the unreported failures, when no job result will name the root cause.
  AgentActions announce_failures();

  const std::vector<std::string> command_;
  Replacements replacements_;
  std::string command_difference_;        // the last line that was announced about it
  std::optional<PrepareRound> proposed_;  // the round that was agreed and has not started
  // The change by which this node joins a round that runs, while its workers of earlier rounds are stopping, and the
  // last change after it.
  std::optional<RoundChanged> joining_, joined_since_;
  std::optional<std::int64_t> current_;  // the generation whose workers were started last
  std::size_t nodes_ = 0;                // of that round
  int group_rank_ = 0;                   // of this node in it
  std::string worker_store_;             // host:port of the latest round's workers' store
  bool workers_running_ = false;
  bool stopping_ = false;
  bool recoverable_ = false;               // all workers of the round can recover
  bool kept_ = false;                      // they run on without a rendezvous
  std::vector<AgentAction> reports_;       // this node's of the round, while the rendezvous has not decided on them
  std::vector<WorkerFailure> unreported_;  // this node's, until a job result or a new round names the job's root cause
  bool signalled_ = false;
  std::optional<int> leaves_by_;  // the signal for which this node has asked to leave, until that is answered
  bool stop_requested_ = false;   // a signal or a request has asked for it
  std::string leaves_for_;        // who requested the leave that was asked for last
  Absence absence_ = Absence::for_good;
  bool leaves_after_workers_ = false;  // the job, for good
  bool away_ = false;
  std::optional<Finish> end_;  // decided on; returned once no worker is left
  bool finished_ = false;
};

}  // namespace ddprun
