#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/unique_fd.h"
#include "launcher/placement/cpu_list.h"
#include "launcher/report/worker_status.h"
#include "launcher/workers/guardian.h"

namespace ddprun {

// The parameters of one process. Its descriptors are borrowed for the call; -1 means that of this process.
struct ProcessSpec {
  std::filesystem::path executable;
  std::vector<std::string> arguments;        // [0] included
  std::span<const std::string> environment;  // "NAME=value"; borrowed for the call
  int in = -1;
  int out = -1;
  int err = -1;
  std::array<int, 2> inherited{-1, -1};  // further descriptors, under the same numbers; -1: none
  CpuList cpus;                          // CPUs to bind it to; empty: those of this process
  std::uint64_t descriptors = 0;         // its limit of open files (RLIMIT_NOFILE); 0: that of this process
};

// A process that was forked; its exec may not have happened yet.
struct StartedProcess {
  pid_t pid = 0;
  UniqueFd exec_error;  // see exec_error()
};

// Forks a process that leads its own session, hence its own process group. Before its exec the guardian knows its
// group, its CPUs are bound, every descriptor but 0 to 2 and the inherited ones is closed, signal handlers are reset
// and no signal is blocked. The kernel kills it when the calling thread ends (a parent-death signal belongs to a
// thread), so call on the main thread.
//
// Does not wait for the exec, so that several start side by side. A process whose exec fails ends with code 127;
// exec_error() then has the cause. The caller reaps. Throws Errc::io when there can be no process, or when this process
// may no longer use any of the CPUs.
StartedProcess start_process(const ProcessSpec& spec, Guardian& guardian);

// The errno with which a process that has ended failed before or at its exec; 0 when its exec succeeded.
int exec_error(const StartedProcess& process);

// A change of a child's state: it ended, was stopped by a signal (SIGSTOP and the like), or was continued.
struct ProcessChange {
  enum class Kind { ended, stopped, continued } kind = Kind::ended;
  ProcessExit exit;  // stopped: with the signal; continued: only the process id
};

// Returns all changes so far, of adopted children too. Reaps ended children and reports the guardian's own to it.
std::vector<ProcessChange> reap_children(Guardian& guardian);

}  // namespace ddprun
