#pragma once

#include <string>
#include <sys/types.h>

#include "ddprun/common/unique_fd.h"

namespace ddprun {

// A small process that outlives the agent by a moment: when the agent is gone, however it went (SIGKILL included), the
// guardian kills what the agent had started and exits. It reads a pipe whose only writers are the agent and, until
// their exec, the workers; end of file means that the agent is gone.
//
// It kills every process group that was added and not removed, then every process that carries the marker in its
// environment (children of workers that made sessions of their own). Not covered: a process that has both left the
// worker's group and cleared its environment, or has no marker in it (--log_dir=/dev/null), when the agent is
// SIGKILLed; while the agent lives it finds those too (descendants.h).
//
// Construct it first thing in main, before any thread exists. The guardian is a session of its own, ignores the signals
// of a terminal, holds no descriptor but the pipe, and is not reported by waitpid(-1) (it sends no SIGCHLD). The
// destructor closes the pipe and reaps it.
class Guardian {
 public:
  Guardian();
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Call in a child between fork and exec, once it leads its own group; async-signal-safe. False when the guardian is
  // gone.
  bool add_own_group() const noexcept;
  // The group is empty: its number may be used again by others.
  void remove_group(pid_t group) const noexcept;
  // "NAME=value" as it begins in the environment of every process of the job; nothing is done with one of more
  // than 1,023 bytes.
  void set_marker(const std::string& prefix) const noexcept;

  // A folder that only this job uses: removed when the agent is gone, unless an empty name has taken it back. At most
  // 1,023 bytes.
  void remove_with_job(const std::string& folder) const noexcept;

  pid_t pid() const { return pid_; }

 private:
  UniqueFd pipe_;
  pid_t pid_ = -1;
};

}  // namespace ddprun
