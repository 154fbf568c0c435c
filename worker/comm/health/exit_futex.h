#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/health/process_identity.h"
#include "worker/comm/memory/shared_segment.h"

namespace ddprun::comm {

// A word in shared memory that the kernel marks when this process begins to end: a robust futex whose owner is a thread
// that sleeps (Linux, Documentation/locking/robust-futexes.rst). Such a thread ends at once, however busy the machine
// is. A pidfd becomes readable only after all threads of the process have had a processor to end on, and after its
// memory has been freed, which takes 0.4 s for 1.5 GB in small pages.
//
// Threads: any may share an object.
class ExitFutex {
 public:
  // Returns that of this process, which is made for the first that asks and given up, unmarked, by the last one that
  // has it. A forked child has one of its own. Null if the kernel gives no shared memory for it.
  static std::shared_ptr<ExitFutex> of_this_process();

  ExitFutex();
  ~ExitFutex();
  ExitFutex(const ExitFutex&) = delete;
  ExitFutex& operator=(const ExitFutex&) = delete;

  // The address for ExitFutexMonitor::Process.
  std::string address() const { return memory_.address(); }

 private:
  void own();

  SharedSegment memory_;
  std::atomic<std::uint32_t> given_up_ = 0;
  std::thread owner_;  // last, as it uses all members above
};

// Reports the end of processes of this host by their futexes. The kernel wakes one of the processes that wait, which
// wakes the others. An end is missed if that one has been stopped or killed: a pidfd has to be watched as well.
//
// Threads: one thread waits; on_end runs there.
class ExitFutexMonitor {
 public:
  struct Process {
    int rank = 0;
    ProcessIdentity identity;
    std::string address;  // of that process's futex
  };
  using OnEnd = std::function<void(int rank)>;

  // on_end: called at most once a process. Processes without a futex that this one can read are skipped, and those
  // above the number that the kernel waits for at once (127); on a kernel before 5.16 all are.
  ExitFutexMonitor(const std::vector<Process>& processes, OnEnd on_end);
  ~ExitFutexMonitor();
  ExitFutexMonitor(const ExitFutexMonitor&) = delete;
  ExitFutexMonitor& operator=(const ExitFutexMonitor&) = delete;

 private:
  void watch(const Process& process);
  void run();

  const OnEnd on_end_;
  std::map<int, SharedSegment> watched_;  // by rank
  std::atomic<std::uint32_t> stop_ = 0;
  std::thread thread_;  // last, as it uses all members above
};

}  // namespace ddprun::comm
