#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/cli/worker_command.h"
#include "ddprun/launcher/output/console.h"
#include "ddprun/launcher/output/log_folder.h"
#include "ddprun/launcher/output/output.h"
#include "ddprun/launcher/placement/placement.h"
#include "ddprun/launcher/workers/guardian.h"
#include "ddprun/launcher/workers/worker_env.h"
#include "ddprun/launcher/workers/worker_process.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// What all rounds of a node's workers have in common.
struct GroupSpec {
  WorkerCommand command;
  Environment environment;  // the agent's own
  WorkerEnvSpec exported;
  OutputSpec output;
  std::string host;  // of this node, for reports
  Placement placement;
  std::uint64_t descriptors = 0;  // that a worker may have open; 0: as many as this process
};

// One worker of the present round, or of one that has just ended.
struct WorkerStatus {
  int local_rank = 0;
  pid_t pid = 0;
  std::optional<ProcessExit> exit;  // unset: it runs, or could not be killed
  bool failed = false;              // by itself, not because it was stopped
  std::string error_file;           // path; need not exist
};

// The node's workers as one unit: started together, stopped together, gone together with every process they made, also
// one that has left the worker's group. Single-threaded, on the loop; the handlers are called from reap() and from
// timers.
class WorkerGroup {
 public:
  struct Handlers {
    // Nothing of the round is left; comes before succeeded and stopped.
    std::function<void(const std::vector<WorkerStatus>&)> ended;
    // One or more workers failed; called once a round, and only when nobody has called stop().
    std::function<void(std::vector<WorkerFailure>)> failed;
    // All workers ended with 0, and nothing they made is left.
    std::function<void()> succeeded;
    // All workers ended with 0 or exit_preempted, some with that, and nothing they made is left.
    std::function<void()> preempted;
    // After stop(): nothing of the round is left. made_room: all workers ended as for preempted.
    std::function<void(bool made_room)> stopped;
    // The state of these workers is another, the first one included.
    std::function<void(const std::vector<WorkerReport>&)> changed;
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
  // SIGUSR1 or SIGUSR2, to every process of the workers' groups that it would not end.
  void notify(int signal_number);
  // Of the present round, in order of local rank.
  std::vector<WorkerStatus> workers() const;
  // The terminal of this process has another size: the workers get it and SIGWINCH.
  void window_changed();
  // Children of this process have ended (SIGCHLD).
  void reap();
  // The console has room again.
  void room();

  // Of the latest round; empty once it has ended.
  std::vector<WorkerReport> statuses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
