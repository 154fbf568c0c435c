#pragma once

#include "worker/comm/backends/mpi/mpi_functions.h"
#include "worker/comm/backends/mpi/mpi_thread.h"

namespace ddprun::comm {

// Calls the functions of an MPI where the MPI allows it: on the caller's thread, or all of them on one thread.
//
// Ownership: the functions and the thread outlive it. Threads and errors: those of MpiFunctions.
class MpiCalls {
 public:
  explicit MpiCalls(const MpiFunctions& functions) : functions_(functions) {}

  // From now on the functions run on that thread.
  void run_on(MpiThread& thread) { thread_ = &thread; }

  // Calls the function, as in call<&MpiFunctions::finalize>().
  template <auto function, class... Arguments>
  int call(Arguments... arguments) const {
    if (!thread_) return (functions_.*function)(arguments...);
    int code = 0;
    thread_->run([&] { code = (functions_.*function)(arguments...); });
    return code;
  }
  const char* name() const { return functions_.name; }

 private:
  const MpiFunctions& functions_;
  MpiThread* thread_ = nullptr;
};

}  // namespace ddprun::comm
