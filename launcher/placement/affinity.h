#pragma once

#include <sys/types.h>
#include <vector>

#include "launcher/placement/cpu_list.h"

namespace ddprun {

// The processors that the calling thread may run on (sched_getaffinity). Throws Errc::io.
CpuList current_affinity();

// A set of processors in the kernel's format, of any size. Build it before a fork and apply() it in the child.
//
// A value. Threads: const functions are thread-safe. Errors: see apply().
class CpuMask {
 public:
  explicit CpuMask(const CpuList& cpus);

  bool empty() const { return words_.empty(); }
  // Binds the calling thread, and so all processes that it forks and executes. Async-signal-safe. Returns 0 or an
  // errno, EINVAL if none of the processors may be used any more.
  int apply() const noexcept { return apply_to(0); }
  // Binds a thread of any process of this user, and returns the same.
  int apply_to(pid_t thread) const noexcept;

 private:
  std::vector<unsigned long> words_;
};

}  // namespace ddprun
