#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/cli/worker_command.h"
#include "ddprun/launcher/output/console.h"
#include "ddprun/launcher/output/log_folder.h"
#include "ddprun/launcher/output/output.h"
#include "ddprun/launcher/workers/guardian.h"
#include "ddprun/launcher/workers/worker_env.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// What all rounds of a node's workers have in common.
struct GroupSpec {
  WorkerCommand command;
  Environment environment;  // the agent's own
  WorkerEnvSpec exported;
  OutputSpec output;
  std::string host;  // of this node, for reports
};

// The node's workers as one unit: started together, stopped together, gone together with every process they made, also
// one that has left the worker's group. Single-threaded, on the loop; the handlers are called from reap() and from
// timers.
class WorkerGroup {
 public:
  struct Handlers {
    // One or more workers failed; called once a round, and only when nobody has called stop().
    std::function<void(std::vector<WorkerFailure>)> failed;
    // All workers ended with 0, and nothing they made is left.
    std::function<void()> succeeded;
    // After stop(): nothing of the round is left.
    std::function<void()> stopped;
  };

  WorkerGroup(boost::asio::io_context& loop, const Guardian& guardian, Console& console, const LogFolder& logs,
              GroupSpec spec, Handlers handlers);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // REQUIRES: nothing of an earlier round is left. Throws Errc::io when a worker cannot be started; stop() then ends
  // those that were.
  void start(const Round& round);
  // Sends the signal to every worker's group; what is left after the grace is killed. May be repeated: the signal is
  // sent again, the earlier end of the grace holds.
  void stop(int signal_number, std::chrono::milliseconds grace);
  // Ends the grace of a stop() now.
  void kill();
  // To every worker's group.
  void forward(int signal_number);
  // The terminal of this process has another size: the workers get it and SIGWINCH.
  void window_changed();
  // Children of this process have ended (SIGCHLD).
  void reap();
  // The console has room again.
  void room();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
