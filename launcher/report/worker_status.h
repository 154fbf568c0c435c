#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

// The state of a worker process and how it ended. Plain values, shared by the code that runs
// workers and the code that reports on them.
namespace ddprun {

// The end of a process, as wait(2) reports it.
struct ProcessExit {
  pid_t pid = 0;
  int code = 0;           // its exit code; 0 when a signal ended it
  int signal_number = 0;  // 0 when it exited by itself
  long peak_kib = 0;      // the largest resident set of the process and of the children it has reaped

  bool success() const { return code == 0 && signal_number == 0; }
};

// One worker of the current round, or of one that has just ended.
struct WorkerStatus {
  int local_rank = 0;
  pid_t pid = 0;
  std::optional<ProcessExit> exit;  // unset: it runs, or could not be killed
  bool started = true;              // false: its program could not be executed
  bool failed = false;              // it failed by itself; false for a worker that this agent stopped
  std::string error_file;           // path; the file need not exist
};

}  // namespace ddprun
