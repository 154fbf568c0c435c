#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace ddprun::comm {

// The thread that calls MPI_Init_thread and MPI_Finalize and, where MPI allows calls from one thread only
// (MPI_THREAD_FUNNELED), every other function of MPI.
//
// Ownership: owns the thread, which the destructor joins: no call may be in progress then. Threads: thread-safe.
// Errors: calls throw nothing.
class MpiThread {
 public:
  MpiThread();
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  // Returns once the thread has run it, after those of earlier callers.
  void run(const std::function<void()>& call);

 private:
  struct Call {
    const std::function<void()>& body;
    bool done = false;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable arrived_, done_;
  std::deque<Call*> calls_;
  bool stopping_ = false;
  std::thread thread_;  // last, as it uses all members above
};

}  // namespace ddprun::comm
