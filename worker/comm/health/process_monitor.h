#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "ddprun/common/unique_fd.h"

namespace ddprun::comm {

// A process of this host, told from a later one of the same number.
struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // in the kernel's ticks since boot

  static ProcessIdentity own();
  bool alive() const;    // also as one that is stopped; not as a zombie
  bool stopped() const;  // by a signal or a debugger
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// Tells at once when one of several processes of this host ends: the kernel says so, whoever else holds copies of its
// connections, and however busy it was.
class ProcessMonitor {
 public:
  struct Process {
    int rank = 0;
    ProcessIdentity identity;
  };
  using OnEnd = std::function<void(int rank)>;

  // on_end: called once a process, in a thread of the watch; for those that have ended already too. Processes that
  // cannot be watched (an old kernel, no descriptor left) are left out.
  ProcessMonitor(const std::vector<Process>& processes, OnEnd on_end);
  ~ProcessMonitor();
  ProcessMonitor(const ProcessMonitor&) = delete;
  ProcessMonitor& operator=(const ProcessMonitor&) = delete;

 private:
  struct Watched {
    int rank = 0;
    UniqueFd fd;
  };
  void run(const std::vector<int>& ended);

  const OnEnd on_end_;
  std::vector<Watched> watched_;
  UniqueFd stop_;
  std::thread thread_;  // last: runs on all the above
};

}  // namespace ddprun::comm
