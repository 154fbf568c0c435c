#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/worker/comm/backends/mpi/mpi_functions.h"

namespace ddprun::comm {

// Which MPI started a process, by the variables that its launcher sets: "openmpi", "mpich", or empty when none did.
// DDPRUN_MPI overrides it. Throws Errc::usage for another name in that.
std::string mpi_of(const Environment& environment);

// Whether this build has a module for some MPI, and this host the MPI.
bool mpi_available();

// MPI in this process: the module for the MPI that started it, loaded and initialised. MPI cannot be initialised twice,
// so there is one, which lives until the process ends; then it calls MPI_Finalize, unless MPI still uses memory of
// unfinished operations.
//
// Threads: thread-safe; the functions are called under mutex().
// Errors: check() throws Errc::connection_lost with MPI's text.
class MpiLibrary {
 public:
  // Throws Errc::unsupported when there is no module for the MPI, or it cannot be loaded or initialised.
  static MpiLibrary& instance();

  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  const MpiFunctions& functions() const { return *functions_; }
  std::mutex& mutex() { return mutex_; }
  std::atomic<int>& waiters() { return waiters_; }  // for Polling
  int rank() const { return rank_; }
  int size() const { return size_; }
  int tag_upper_bound() const { return tag_upper_bound_; }
  std::string_view name() const { return functions_->name; }

  void check(int code, std::string_view what) const {
    if (code) fail(code, what);
  }
  // A communicator for those ranks of the world, all of which call this with that tag. Blocks; give_up is called in
  // between, and ends it by an exception.
  MpiFunctions::Communicator create_communicator(const std::vector<int>& ranks, int tag,
                                                 const std::function<void()>& give_up);

  // MPI uses memory of operations that will not finish: MPI_Finalize would wait for them.
  void abandon() { abandoned_ = true; }

 private:
  MpiLibrary();
  ~MpiLibrary();
  [[noreturn]] void fail(int code, std::string_view what) const;

  const MpiFunctions* functions_;
  std::mutex mutex_;
  std::atomic<int> waiters_ = 0;
  bool concurrent_ = false;
  std::atomic<bool> abandoned_ = false;
  int rank_ = 0, size_ = 1, tag_upper_bound_ = 0;
};

}  // namespace ddprun::comm
