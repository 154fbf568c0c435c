#pragma once

#include <vector>

#include "ddprun/launcher/placement/cpu_list.h"

namespace ddprun {

// The processors that the calling thread may run on, as sched_setaffinity, taskset, cpusets and schedulers left them.
// Throws Errc::io when the kernel does not say.
CpuList current_affinity();

// A set of processors as the kernel takes it, of any size; made ready before a fork.
class CpuMask {
 public:
  explicit CpuMask(const CpuList& cpus);

  bool empty() const { return words_.empty(); }
  // Binds the calling thread, hence what it forks and executes. Async-signal-safe. Returns 0 or an errno: EINVAL when
  // none of the processors may be used (any more).
  int apply() const noexcept;

 private:
  std::vector<unsigned long> words_;
};

}  // namespace ddprun
