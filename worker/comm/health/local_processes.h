#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

#include "common/unique_fd.h"

namespace ddprun::comm {

// A process of this host, distinct from a later one with the same id.
struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // in the kernel's ticks since boot

  static ProcessIdentity own();
  bool alive() const;    // a stopped process is alive; a zombie is not
  bool stopped() const;  // stopped by a signal or a debugger
  bool runs() const;     // a thread of it has a processor, or waits for one
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// Reports the end of processes of this host at once, by pidfd, however busy the machine is and whatever other process
// holds copies of their connections. One thread waits; on_end runs there.
class ProcessMonitor {
 public:
  struct Process {
    int rank = 0;
    ProcessIdentity identity;
  };
  using OnEnd = std::function<void(int rank)>;

  // on_end: called once a process, also for one that has already ended. Processes that cannot be watched (an old
  // kernel, no descriptor left) are skipped.
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
  std::thread thread_;  // last, as it uses all members above
};

// The probe of the group's other ranks on this host. One thread calls it.
class LocalProcesses {
 public:
  // on_end: called by another thread when take_ended() has something to return.
  LocalProcesses(int rank, std::function<void()> on_end) : rank_(rank), on_end_(std::move(on_end)) {}

  // A line for each rank of this host, which the ranks append to a key of the store.
  static std::string registration(int rank, const std::string& label = "");
  // Watches the ranks in such lines, except this one. Called once.
  void watch(const std::string& registrations);
  // Returns the ranks whose processes ended since the last call.
  std::vector<int> take_ended();
  // Returns "cuda:1, pid 42 on host b" for a rank that is watched, with its label.
  std::string identity(int rank) const;
  // Returns whether the rank is another process of this host, of which a thread has a processor or waits for one.
  bool runs(int rank) const;
  // Returns texts such as "its process is stopped", by rank.
  std::map<int, std::string> states() const;

 private:
  const int rank_;
  const std::function<void()> on_end_;
  std::map<int, ProcessIdentity> peers_;
  std::map<int, std::string> labels_;  // CommConfig::label of each rank

  std::mutex mutex_;
  std::vector<int> ended_;  // guarded by mutex_

  std::optional<ProcessMonitor> monitor_;  // last, as it uses all members above
};

}  // namespace ddprun::comm
