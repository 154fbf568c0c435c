#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/placement/cpu_list.h"
#include "ddprun/launcher/workers/guardian.h"

namespace ddprun {

// How to start one worker. The descriptors are borrowed for the call; -1: inherit this process's own.
struct ProcessSpec {
  std::filesystem::path executable;
  std::vector<std::string> arguments;        // [0] included
  std::span<const std::string> environment;  // "NAME=value"; borrowed too
  int in = -1;
  int out = -1;
  int err = -1;
  CpuList cpus;                   // to be bound to; empty: this process's own
  std::uint64_t descriptors = 0;  // how many it may have open; 0: as many as this process
};

// A process on its way to its exec, or beyond.
struct StartedProcess {
  pid_t pid = 0;
  UniqueFd exec_error;  // see exec_error()
};

// Starts a process that leads a session, hence a process group, of its own; that the kernel kills when this thread ends
// (a parent-death signal follows the thread: call on the main thread); and whose group the guardian knows before its
// exec. It is bound before that too. Every descriptor but 0 to 2 is closed, signals are as
// they were when this process began. Does not wait for the exec, so that several start side by side; one that fails
// ends with code 127 and leaves the cause to exec_error(). The caller reaps. Throws Errc::io when there can be no
// process at all, or when none of its CPUs may be used any more.
StartedProcess start_process(const ProcessSpec& spec, const Guardian& guardian);

// Of a process that has ended: the errno with which it failed before or at its exec; 0 when it came through.
int exec_error(const StartedProcess& process);

// What waitpid said of a process.
struct ProcessExit {
  pid_t pid = 0;
  int code = 0;           // as it gave it; 0 when ended by a signal
  int signal_number = 0;  // 0 when it ended by itself
  long peak_kib = 0;      // the most memory that it, or a child it has reaped, had resident

  static ProcessExit from_status(pid_t pid, int status);
  bool success() const { return code == 0 && signal_number == 0; }
};

// What has become of a child: it has ended, has been stopped by a signal (SIGSTOP and the like), or runs on.
struct ProcessChange {
  enum class Kind { ended, stopped, continued } kind = Kind::ended;
  ProcessExit exit;  // stopped: with the signal that did it; continued: the process id alone
};

// Every change by now, of adopted children too; those that have ended are reaped.
std::vector<ProcessChange> reap_children();

}  // namespace ddprun
