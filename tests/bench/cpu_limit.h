#pragma once

#include <filesystem>

namespace ddprun::bench {

// A control group (cgroup) that limits its processes to this many cores together, in periods of 10 ms: version 2, or
// the cpu controller of version 1. The destructor removes it, once its processes have ended. Throws Errc::io where this
// user may not make one.
class CpuLimit {
 public:
  explicit CpuLimit(double cores);
  ~CpuLimit();
  CpuLimit(const CpuLimit&) = delete;
  CpuLimit& operator=(const CpuLimit&) = delete;

  // A process that writes its id to this file is in the group.
  std::filesystem::path processes() const { return folder_ / "cgroup.procs"; }

 private:
  std::filesystem::path folder_;
};

}  // namespace ddprun::bench
