#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/workers/guardian.h"

namespace ddprun {

// How to start one worker. The descriptors are borrowed for the call; -1: inherit this process's own.
struct ProcessSpec {
  std::filesystem::path executable;
  std::vector<std::string> arguments;    // [0] included
  std::vector<std::string> environment;  // "NAME=value"
  int out = -1;
  int err = -1;
};

// A process on its way to its exec, or beyond.
struct StartedProcess {
  pid_t pid = 0;
  UniqueFd exec_error;  // see exec_error()
};

// Starts a process that leads a session, hence a process group, of its own; that the kernel kills when this thread ends
// (a parent-death signal follows the thread: call on the main thread); and whose group the guardian knows before its
// exec. Standard input is inherited, every descriptor but 0 to 2 is closed, signals are as they were when this process
// began. Does not wait for the exec, so that several start side by side; one that fails ends with code 127 and leaves
// the cause to exec_error(). The caller reaps. Throws Errc::io when there can be no process at all.
StartedProcess start_process(const ProcessSpec& spec, const Guardian& guardian);

// Of a process that has ended: the errno with which it failed before or at its exec; 0 when it came through.
int exec_error(const StartedProcess& process);

// What waitpid said of a process.
struct ProcessExit {
  pid_t pid = 0;
  int code = 0;           // as it gave it; 0 when ended by a signal
  int signal_number = 0;  // 0 when it ended by itself

  static ProcessExit from_status(pid_t pid, int status);
  bool success() const { return code == 0 && signal_number == 0; }
};

// Every child that has ended by now, adopted ones too.
std::vector<ProcessExit> reap_children();

// False once no process of the group is left.
bool group_exists(pid_t group);

}  // namespace ddprun
