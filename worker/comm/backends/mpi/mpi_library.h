#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "worker/comm/backends/mpi/mpi_calls.h"
#include "worker/comm/backends/mpi/mpi_functions.h"
#include "worker/comm/backends/mpi/mpi_thread.h"

namespace ddprun::comm {

// Returns whether this build has a module for some MPI, and this host has that MPI.
bool mpi_available();

// MPI in this process: the module for the MPI that started it, loaded and initialized. MPI cannot be initialized twice,
// so there is one, which lives until the process ends; then it calls MPI_Finalize, unless MPI still uses memory of
// unfinished operations. Calls that MPI cannot interrupt are bounded (bounded_call.h).
//
// Threads: thread-safe; the calls are made under mutex(). Where MPI allows calls from one thread only, they run
// on a thread of this object. Errors: check() throws Errc::connection_lost with MPI's text.
class MpiLibrary {
 public:
  // bound: the limit of each call that cannot be interrupted, MPI_Init_thread first; the first caller's counts. Throws
  // Errc::usage when there is no module for the MPI, Errc::unsupported when it cannot be loaded or initialized.
  static MpiLibrary& instance(std::chrono::milliseconds bound);

  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  const MpiCalls& calls() const { return calls_; }
  std::mutex& mutex() { return mutex_; }
  std::atomic<int>& waiters() { return waiters_; }  // for Polling
  int rank() const { return rank_; }
  int size() const { return size_; }
  int tag_upper_bound() const { return tag_upper_bound_; }
  std::string_view name() const { return calls_.name(); }

  void check(int code, std::string_view what) const {
    if (code) fail(code, what);
  }
  // Broadcasts from the world's rank root; all of the world call this. Bounded. Throws what check() throws.
  void broadcast_in_world(void* data, int bytes, int root);
  // This process's rank among the world's on this host, and their number. host() is called, and fails, like the above.
  struct Host {
    int rank = 0, size = 1;
  };
  Host host();
  // Makes a communicator for those ranks of the world, all of which call this with that tag. Blocks; give_up is called
  // in between, and ends it by an exception.
  MpiFunctions::Communicator create_communicator(const std::vector<int>& ranks, int tag,
                                                 const std::function<void()>& give_up);

  // Records that MPI uses memory of operations that will not finish: MPI_Finalize would wait for them.
  void abandon() { abandoned_ = true; }

 private:
  explicit MpiLibrary(std::chrono::milliseconds bound);
  ~MpiLibrary();
  void initialize();
  [[noreturn]] void fail(int code, std::string_view what) const;

  const std::chrono::milliseconds bound_;
  const MpiFunctions& module_;
  MpiCalls calls_;
  std::unique_ptr<MpiThread> thread_;
  std::mutex mutex_;
  std::atomic<int> waiters_ = 0;
  bool concurrent_ = false;
  std::atomic<bool> abandoned_ = false;
  int rank_ = 0, size_ = 1, tag_upper_bound_ = 0;
};

}  // namespace ddprun::comm
