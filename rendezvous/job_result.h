#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

// A failed worker as its agent observed it.
struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  int group_rank = 0;
  std::string host;
  std::int64_t pid = 0;
  int exit_code = 0;         // 0 if a signal ended it
  int signal_number = 0;     // 0 if it exited
  std::int64_t time_us = 0;  // since the epoch; from the worker's error file, otherwise when its exit was observed
  std::string message;       // from the error file, if there is one
  std::string last_lines;    // the end of its standard error
  std::string error_file;    // path on its host; may be empty
  std::string cause;         // as its host's kernel reports it: "out of memory: ..."; empty: the exit code or signal
  std::string label;         // the worker's own name of its place, "pipeline 1, data 0, tensor 1"; may be empty
  bool consequence = false;  // it reports that it failed because it lost a peer
  bool usage_error = false;  // the user's mistake, found at start-up; message is the sentence to print
};

// The other workers of a node that reports failed ones.
enum class Survivors : std::uint8_t {
  stopped,  // the node stops them
  run,      // they run, and so may the whole job's, with replacements for the failed ones; otherwise all are restarted
  run_or_end,  // does what run does, but otherwise the job ends (--restart=failed)
};

// The result of a job, the same on every node.
struct JobResult {
  bool success = false;
  int exit_code = 0;                    // exit code of ddprun: 0, the root cause's own, 128 + signal, or 1
  std::string reason;                   // one line
  std::vector<WorkerFailure> failures;  // the root cause first
};

}  // namespace ddprun
