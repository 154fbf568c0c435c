#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "ddprun/common/unique_fd.h"

namespace ddprun {

// A small process that outlives the agent briefly: when the agent has ended, also by SIGKILL, the guardian
// kills every process that the agent had started, and exits. It reads a pipe whose only writers are the agent
// and, until their exec, the workers; end of file means that the agent has ended.
//
// It kills every process group that was added and not removed, then every process with the marker in its environment
// (children of workers in sessions of their own). It misses a process that has both left the worker's group and cleared
// its environment, or that has no marker (no folder for error files), when the agent gets SIGKILL. While the agent
// lives it finds those itself (descendants.h).
//
// Ownership: construct it first in main, before any thread exists. The destructor closes the pipe and reaps the
// process. The guardian leads its own session, ignores the signals of a terminal and has no descriptor but the
// pipe. waitpid(-1) does not report it unless it was restarted. Threads: single-threaded, except add_own_group().
// Errors: the constructor and restart() throw Errc::io. Other functions ignore that the guardian has ended: restart()
// makes up for it. GuardianWatch does that in an event loop.
class Guardian {
 public:
  Guardian();
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Call in a child between fork and exec, once it leads its own group; async-signal-safe. Returns false when the
  // guardian has ended.
  bool add_own_group() const noexcept;
  // Call in the parent after the fork: a restarted guardian is sent these groups.
  void remember_group(pid_t group) { groups_.push_back(group); }
  // The group is empty; the kernel may reuse its number.
  void remove_group(pid_t group);
  // "NAME=value" with which an entry in the environment of every process of the job begins. Ignored above 1,023 bytes,
  // since a shortened one might match other jobs.
  void set_marker(const std::string& prefix);
  // A folder that only this job uses: removed when the agent has ended. An empty name cancels that. Ignored above 1,023
  // bytes.
  void remove_with_job(const std::string& folder);

  pid_t pid() const { return pid_; }
  // A pidfd: readable once the guardian has ended; -1 where the kernel has none (before 5.2).
  int exit_descriptor() const { return pidfd_.get(); }

  // REQUIRES: the guardian has ended. Reaps it and starts another that knows all groups, the marker and the folder. The
  // new one is started by executing this program with run_option, since threads may exist by now; it is a child
  // that waitpid(-1) reports. Returns how the old one ended ("SIGKILL"), empty when that is not known.
  std::string restart();
  bool restarted() const { return restarted_; }

  // This program's argument that makes it a guardian whose pipe is standard input.
  static constexpr std::string_view run_option = "--guardian";
  [[noreturn]] static void run();

 private:
  void start(bool by_exec);
  int reap(int flags);

  UniqueFd pipe_;
  UniqueFd pidfd_;
  pid_t pid_ = -1;
  bool restarted_ = false;
  std::vector<pid_t> groups_;
  std::string marker_;
  std::string folder_;
};

}  // namespace ddprun
