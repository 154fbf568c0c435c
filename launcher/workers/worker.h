#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "common/exit_code.h"
#include "launcher/report/worker_status.h"
#include "launcher/workers/worker_process.h"
#include "rendezvous/node_report.h"

namespace ddprun {

// The agent's data about one worker of the current round. Owns the descriptor that reports its exec. Not thread-safe.
struct Worker {
  int local_rank = 0;
  StartedProcess process;
  std::string error_file;
  std::optional<ProcessExit> exit;
  int exec_error = 0;  // set once it has ended: the errno with which its program could not be executed
  int stopped_by = 0;  // the signal that stopped it, until it is continued
  bool failed = false;
  bool reported = false;  // its failure has been reported; it is replaced, or all workers are stopped
  int sent_signal = 0;    // the last one that this agent sent, with the reason
  std::string sent_reason;
  std::optional<int> aborted;  // it called MPI_Abort with this exit code
  std::string complaint;       // its fault although it exited with 0
  std::string blocked;         // why it has failed although it runs

  bool ended_well() const { return exit->success() && complaint.empty() && !aborted; }
  bool preempted() const { return exit && exit->signal_number == 0 && exit->code == exit_preempted; }
  pid_t group() const { return process.pid; }
  WorkerReport report() const;
  WorkerStatus status() const;
};

}  // namespace ddprun
