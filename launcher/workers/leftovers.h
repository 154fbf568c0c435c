#pragma once

#include <set>
#include <sys/types.h>
#include <vector>

#include "launcher/workers/guardian.h"

namespace ddprun {

// The processes of a job that its workers have left behind, which this process has adopted: its children other than
// workers, the guardian, and those it had before it executed ddprun (exec from a shell).
//
// Ownership: borrows the guardian. Threads: not thread-safe. Errors: none thrown.
class Leftovers {
 public:
  // Reaps the children that have ended; those that live do not belong to the job.
  explicit Leftovers(Guardian& guardian);

  // Returns whether no process of the workers is left. REQUIRES: no worker is left.
  bool none() const;
  std::vector<pid_t> processes() const;
  // Signals each of them once in a round.
  void signal(int signal_number);
  void begin_round() { signalled_.clear(); }

 private:
  Guardian& guardian_;
  std::set<pid_t> inherited_;  // children that are not the job's, without the guardian
  std::set<pid_t> signalled_;
};

}  // namespace ddprun
