#pragma once

#include "common/error.h"

namespace ddprun {

// Exit codes are an interface: schedulers and scripts branch on them.
//   0        success
//   1        rendezvous, store, timeout or any other fault of the job
//   2        usage: the command line, a configuration file, a value
//   75       preempted: on a preemption request the workers saved their state and stopped; start the job again later
//            (EX_TEMPFAIL of sysexits.h). A worker that exits with it has not failed and is not restarted.
//   128 + n  ended by signal n (a worker, or ddprun itself; 143 also after ddprun stop)
//   other    the exit code of the worker that is the root cause
inline constexpr int exit_success = 0;
inline constexpr int exit_fault = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_preempted = 75;

constexpr int exit_for_signal(int signal_number) {
  return 128 + signal_number;
}
constexpr int exit_for(Errc code) {
  return code == Errc::usage ? exit_usage : exit_fault;
}

}  // namespace ddprun
