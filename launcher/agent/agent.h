#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/launcher/report/events.h"
#include "ddprun/launcher/workers/guardian.h"
#include "ddprun/launcher/workers/worker_group.h"
#include "ddprun/rendezvous/backend.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct AgentSpec {
  NodeInfo node;
  JobPolicy policy;
  GroupSpec group;
  std::string log_dir;     // as --log_dir was given
  bool keep_logs = false;  // the user asked for files
  std::chrono::milliseconds grace{30'000};
  EventTarget events;
  bool watchdog = false;                                           // workers may set timers
  std::string watchdog_pipe;                                       // where; empty: among the logs
  std::string backend;                                             // of the rendezvous, for events
  std::vector<int> end_signals{SIGTERM, SIGINT, SIGHUP, SIGQUIT};  // the job ends by them
  std::function<std::unique_ptr<RendezvousBackend>(boost::asio::io_context&)> open_rendezvous;
  // Takes the failure's summary, at the very end, and for a root cause of this node what a scheduler's error file is to
  // have, else nothing; unset: the summary goes to standard error.
  std::function<void(const std::string& summary, const std::string& error_file)> summarize;
};

// One node's agent: joins the job, runs its workers through every round, and returns ddprun's exit code. A thin shell
// around AgentState: one event loop, on the calling thread, which has to be the main one (workers die with the thread
// that started them). Worker deaths come from SIGCHLD. SIGUSR1 and SIGUSR2 pass through to the workers unless they are
// among those that end the job.
int run_agent(const AgentSpec& spec, const Guardian& guardian);

}  // namespace ddprun
