#pragma once

#include <sys/types.h>

#include "common/unique_fd.h"

namespace ddprun::bench {

// A process that briefly outlives this program. When this program ends before the destructor has run, killed or
// interrupted from the keyboard, it ends the processes that were started here, including launchers with their workers,
// first with SIGTERM, and removes this program's network namespaces. It knows them by a variable of the environment
// that all of them inherit; processes that were forked without an exec end with their parent by themselves.
//
// Construct it first in main, before any thread exists.
class Sweeper {
 public:
  Sweeper();
  Sweeper(const Sweeper&) = delete;
  Sweeper& operator=(const Sweeper&) = delete;
  ~Sweeper();

 private:
  UniqueFd pipe_;  // never written to: its end is the end of this program
  pid_t pid_ = -1;
};

}  // namespace ddprun::bench
