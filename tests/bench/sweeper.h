#pragma once

#include <sys/types.h>

#include "ddprun/common/unique_fd.h"

namespace ddprun::bench {

// A process that outlives this program by a moment. When this program is gone before the destructor has run, killed or
// ended by a key, it ends what was started here, launchers with their workers included, first with SIGTERM, and removes
// this program's network namespaces. It knows them by a variable of the environment that all of them inherit; processes
// that were forked without an exec end with their parent by themselves.
//
// Construct it first thing in main, before any thread exists.
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
