#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "launcher/agent/agent.h"
#include "launcher/agent/agent_state.h"
#include "launcher/agent/node_usage.h"
#include "launcher/agent/recoverable_reports.h"
#include "launcher/agent/spare_processes.h"
#include "launcher/agent/store_hint.h"
#include "launcher/agent/training_watch.h"
#include "launcher/agent/workers_store.h"
#include "launcher/attach/attached_clients.h"
#include "launcher/attach/remote_signals.h"
#include "launcher/chaos/fault_injector.h"
#include "launcher/control/agent_record.h"
#include "launcher/control/control_socket.h"
#include "launcher/dashboard/job_watch.h"
#include "launcher/output/console.h"
#include "launcher/output/log_folder.h"
#include "launcher/output/log_through_console.h"
#include "launcher/report/event_log.h"
#include "launcher/workers/guardian_watch.h"
#include "launcher/workers/watchdog.h"
#include "launcher/workers/worker_group.h"
#include "rendezvous/recovery/store_notice.h"

namespace ddprun {

// The agent of run_agent() while it runs: executes what AgentState decides, and passes on to it what happens. Its parts
// are in sources of their own: the round and its workers (node_agent_round), what is reported of them
// (node_agent_reports), requests of other programs and agents (node_agent_requests), and faults that are injected
// (node_agent_faults).
//
// Ownership: borrows the specification and the guardian. Threads: single-threaded, on the main thread. Errors: the
// constructor throws Errc::io; later ones end the job.
class NodeAgent {
 public:
  NodeAgent(const AgentSpec& spec, Guardian& guardian);
  int run();

 private:
  static LogFolder make_log_folder(const AgentSpec& spec);
  static std::unique_ptr<StoreNotice> make_store_notice(const AgentSpec& spec);
  std::unique_ptr<Watchdog> make_watchdog(const AgentSpec& spec);
  GroupSpec group_spec(const AgentSpec& spec);
  static EventFacts event_facts(const AgentSpec& spec);
  static bool dumb_terminal(const AgentSpec& spec);

  void join();
  void on_rendezvous(RendezvousEvent event);
  void on_workers_ended(const std::vector<WorkerStatus>& workers);
  bool workers_survive(int signal) const;
  void watch_signals();
  void wait_for_signal();
  bool ends_job(int signal) const;
  void stop_serving(int signal);
  std::chrono::milliseconds output_timeout(const Finish& finish) const;
  int end();

  void act(AgentActions actions);
  void execute(const PrepareRound& action);
  void execute(const StartWorkers& action);
  void execute(const ChangeRound& action);
  void execute(const ReplaceWorkers& action);
  void execute(const StandBy& action);
  void execute(const StopWorkers& action);
  void execute(const ReleaseWorkers&);
  void execute(const KillWorkers&);
  void execute(const ReportSuccess& action);
  void execute(const ReportPreempted& action);
  void execute(const RequestStop& action);
  void execute(const ReportFailure& action);
  void execute(const AnswerRecovery& action);
  void execute(const KeepRound& action);
  void execute(const GiveUpRound&);
  void execute(const LeaveJob& action);
  void execute(const AskToLeave& action);
  void execute(const JoinAgain&);
  void execute(const Announce& action);
  void execute(const Finish& action);

  // The round, its workers and their store.
  const RoundMember& self() const { return round_->members.at(static_cast<std::size_t>(round_->self)); }
  int local_rank_of(int rank) const { return rank - self().first_rank; }
  std::map<int, pid_t> running_ranks() const;
  std::vector<std::string> own_members() const;  // the names of this node's workers
  std::vector<WorkerStatus> some_workers(const std::vector<int>& local_ranks) const;
  WorkerFailure not_started(int local_rank, const Error& error) const;
  std::vector<WorkerCondition> conditions() const;
  std::optional<Recoverable> recoverable() const;
  void remove_token_file();
  void check_descriptor_limit(const PrepareRound& action, int connections_of_workers) const;
  std::uint16_t provide_store(const PrepareRound& action);
  void follow_store(bool in_order);
  std::string store_socket() const { return store_.serves(*round_) ? control_->path().string() : ""; }
  std::chrono::milliseconds accept_bound() const;
  static bool decides_with_server(const AgentSpec& spec);

  // Reports.
  dashboard::WatchSpec watch_spec(const AgentSpec& spec);
  bool shows_curve() const { return spec_.loss_curve.value_or(console_.window(Console::Stream::err).has_value()); }
  void show_curve();
  dashboard::RankEvidence evidence_of(int local_rank) const;
  AgentRecord record() const;
  void report_workers(const std::vector<WorkerReport>& changed);
  void report_node(const NodeReport& report);
  void report_training();
  void report_first_step();
  void report_got_state();
  void report_again();
  std::optional<bool> wants_standby() const;
  void report_spare();
  void keep_standby();

  // Requests.
  void open_control_socket();
  std::string no_such_rank(int rank) const;
  std::string signal_own_rank(int rank, const RequestedSignal& signal);
  void signal_rank(int rank, const RequestedSignal& signal, const ControlSocket::SignalReply& reply);
  void end_lost_workers();
  bool relays() const { return backend_ && backend_->rendezvous().relays(); }
  std::string relay(const RelayMessage& message);
  void on_relayed(const RelayMessage& message);

  // Faults.
  void inject_faults();
  void leave_by_fault();
  std::vector<FaultTarget> fault_targets() const;
  void on_leave_answered(const LeaveAnswered& answer);

  const AgentSpec& spec_;
  Guardian& guardian_;
  boost::asio::io_context loop_{1};
  Console console_;
  LogThroughConsole log_through_console_;
  std::unique_ptr<EventReporter> events_;  // null: no events are reported
  LogFolder logs_;
  std::unique_ptr<Watchdog> watchdog_;  // null: not enabled
  TrainingWatch training_;
  const std::unique_ptr<StoreNotice> store_notice_;  // null: the workers' store stays where it is
  AttachedClients attached_;
  RemoteSignals remote_signals_;
  NodeUsageMeter usage_;
  dashboard::JobWatch watch_;
  boost::asio::signal_set signals_;
  GuardianWatch guardian_watch_;
  WorkerGroup group_;
  SpareProcesses spare_;
  StoreHint hint_;
  AgentState state_;
  WorkersStore store_;
  std::unique_ptr<FaultInjector> faults_;  // null: none are injected, or not yet
  std::unique_ptr<RendezvousBackend> backend_;
  std::unique_ptr<ControlSocket> control_;
  std::optional<Round> round_;  // the round whose workers were started last
  RecoverableReports recoverable_reports_;
  std::vector<std::string> got_state_;  // as reported last
  int replaced_ = 0;                    // number of workers that this node replaced by its own decision, in all rounds
  std::deque<AgentAction> queue_;
  bool acting_ = false;
  std::optional<int> signal_;
  std::optional<Finish> finish_;
};

}  // namespace ddprun
