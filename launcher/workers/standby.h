#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>

#include "common/environment.h"
#include "common/unique_fd.h"
#include "launcher/cli/worker_command.h"
#include "launcher/workers/guardian.h"
#include "launcher/workers/worker_environment.h"
#include "launcher/workers/worker_process.h"

namespace ddprun {

// Returns whether one process of the program can become the worker of any local rank: what it reads before it knows the
// rank is the same for all of them.
bool suits_all_workers(const WorkerCommand& command, const WorkerEnvSpec& exported, const Environment& environment);

// A standby process of a node, or none: see standby_socket.h. It is no worker until it is adopted.
//
// Ownership: owns the process, and its end of the socket; borrows the guardian. Destroying it does not end the process,
// which ends itself at the end of file. Threads: single-threaded, on the main thread (see start_process()).
// Errors: none thrown. Where no process can be started, or it ends by itself or cannot be adopted, there is none; after
// a few of these losses no other is started in the round.
class Standby {
 public:
  explicit Standby(Guardian& guardian) : guardian_(guardian) {}

  // Ends the process. Losses count anew.
  void begin_round();
  // Starts the process unless there is one. spec: as for a worker; what it says of environment and standard descriptors
  // is replaced. environment: called with the descriptor that the process inherits.
  void start(ProcessSpec spec, const std::function<std::span<const std::string>(int descriptor)>& environment);
  // Makes the process the worker that the spec describes, if it is ready. Returns none if it is not, or is frozen, or
  // has ended; the worker is started as usual then.
  std::optional<StartedProcess> adopt(const ProcessSpec& worker);
  // Call with each change of a child. Returns whether another process or the kernel has killed this one (SIGKILL).
  bool apply(const ProcessChange& change);
  // Returns whether the process could be adopted now.
  bool ready();
  // Ends the process by SIGKILL; apply() gets the change once it has ended.
  void kill();

 private:
  struct Process {
    StartedProcess started;
    UniqueFd socket;
    bool ready = false;
    bool stopped = false;
    bool killed = false;
  };
  Guardian& guardian_;
  std::optional<Process> process_;
  int losses_ = 0;  // in this round
};

}  // namespace ddprun
