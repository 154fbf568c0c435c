#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "launcher/workers/guardian_process.h"

namespace ddprun {

// Two small processes that outlive the agent briefly: when the agent has ended, also by SIGKILL, each of them kills
// every process that the agent had started, and exits. Each reads a pipe whose only writers are the agent
// and, until their exec, the workers; end of file means that the agent has ended. There are two, so that one remains
// when the other is frozen or is killed together with the agent. The second one's name is not that of ddprun, so that
// `pkill -KILL ddprun` spares it.
//
// They kill every process group that was added and not removed, then every process with the marker in its environment
// (children of workers in sessions of their own). They miss a process that has both left the worker's group and cleared
// its environment, or that has no marker (no folder for error files), when the agent gets SIGKILL. While the agent
// lives it finds those itself (descendants.h).
//
// Ownership: construct it first in main, before any thread exists. The destructor closes the pipes, continues processes
// that are stopped, and reaps both; one that has not ended within five seconds is killed, and a line reports this. Each
// process leads its own session, ignores the signals of a terminal and has no descriptor but the pipe. waitpid(-1) does
// not report it unless it was restarted. Threads: single-threaded, except add_own_group(). Errors: the constructor and
// restart() throw Errc::io. Other functions ignore that a process has ended: restart() makes up for it. GuardianWatch
// does that in an event loop.
class Guardian {
 public:
  static constexpr std::size_t count = 2;

  Guardian();
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Call in a child between fork and exec, once it leads its own group; async-signal-safe. Both processes then know the
  // group, so that one is enough whichever process dies next. SIGPIPE may be pending afterwards.
  void add_own_group() const noexcept;
  // Call in the parent after the fork.
  void remember_group(pid_t group);
  // Sends the groups remembered since the last call to both processes, each at once.
  void confirm_groups();
  // The groups are empty; the kernel may reuse their numbers.
  void remove_groups(std::span<const pid_t> groups);
  // prefix is "NAME=value" with which an entry in the environment of every process of the job begins. It is ignored
  // above 1,023 bytes, since a shortened one might match other jobs.
  void set_marker(const std::string& prefix);
  // Removes a folder or file that only this job uses when the agent has ended. A path above 1,023 bytes is ignored.
  void remove_with_job(const std::filesystem::path& path);
  // Cancels remove_with_job().
  void keep_after_job(const std::filesystem::path& path);

  const GuardianProcess& process(std::size_t index) const { return processes_[index]; }
  bool owns(pid_t pid) const;
  // waitpid(-1) has reaped this process of the guardian.
  void record_end(pid_t pid, int signal_number);

  // REQUIRES: the process has ended. Reaps it and starts another that knows all groups, the marker and the paths. The
  // new one is started by executing this program with run_option, since threads may exist by now; it is a child
  // that waitpid(-1) reports. Returns how the old one ended ("SIGKILL"), empty when it exited.
  std::string restart(std::size_t index);
  bool restarted() const { return restarted_; }

  // This program's first argument that makes it a guardian whose pipe is standard input; the second is its name.
  static constexpr std::string_view run_option = "--guardian";

 private:
  std::array<GuardianProcess, count> processes_;
  bool restarted_ = false;
  std::vector<pid_t> groups_;
  std::vector<pid_t> unconfirmed_;
  std::string marker_;
  std::vector<std::string> paths_;
};

}  // namespace ddprun
