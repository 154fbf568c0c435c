#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/replacements.h"
#include "launcher/chaos/fault_schedule.h"
#include "launcher/cluster/job_trust.h"
#include "launcher/dashboard/job_watch.h"
#include "launcher/report/events.h"
#include "launcher/workers/guardian.h"
#include "launcher/workers/health_check.h"
#include "launcher/workers/worker_group.h"
#include "rendezvous/backend.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/node_info.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// The specification of what one node's agent is to do.
struct AgentSpec {
  NodeInfo node;
  JobPolicy policy;
  GroupSpec group;
  HealthCheck health_check;         // without a command there is none
  std::optional<FaultPlan> faults;  // none: no fault is injected
  std::string log_dir;              // the value of --log_dir
  bool keep_logs = false;           // the user asked for log files
  std::chrono::milliseconds grace{30'000};
  EventTarget events;
  RestartRules restarts;
  bool watchdog = false;                                           // workers may set watchdog timers
  std::string watchdog_pipe;                                       // path of its pipe; empty: in the log folder
  std::string backend;                                             // the rendezvous' back end, for events
  std::optional<dashboard::DashboardAddress> dashboard;            // none: no page is served
  std::optional<bool> loss_curve;                                  // it is printed at the end; unset: on a terminal
  std::vector<int> end_signals{SIGTERM, SIGINT, SIGHUP, SIGQUIT};  // signals that end the job
  std::function<std::unique_ptr<RendezvousBackend>(boost::asio::io_context&)> open_rendezvous;
  JobTrust trust;
  // Receives, at the end, the failure summary and, if the root cause is on this node, the content of the scheduler's
  // error file (otherwise empty). If it is unset, the summary goes to standard error.
  std::function<void(const std::string& summary, const std::string& error_file)> summarize;
};

// Runs one node's agent: joins the job, runs its workers through every round, and returns ddprun's exit code. A thin
// layer around AgentState: one event loop on the calling thread, which must be the main thread (the kernel kills
// workers when the thread that started them ends). SIGCHLD reports the ends of workers. SIGUSR1 and SIGUSR2 are passed
// on to the workers unless they are among the signals that end the job. A guardian that is killed is replaced.
//
// Throws Errc::usage when the faults cut network links and those of this node cannot be, and Errc::io when the node's
// health check fails, when the limit of open files is too low or a log folder, pipe or event log cannot be opened;
// later errors end the job and are logged.
int run_agent(const AgentSpec& spec, Guardian& guardian);

}  // namespace ddprun
