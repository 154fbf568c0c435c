#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace ddprun::comm {

// A bound for a call of MPI, while this object lives. Such a call waits for ranks that may never come, and MPI cannot
// interrupt it: after the bound this process ends with exit code 1 and a line that names rank, host, call and bound,
// also in its error file.
//
// Owns the thread that waits. Threads: not thread-safe. Errors: none. Units: milliseconds, at most longest_timeout.
class BoundedCall {
 public:
  // call: its name, such as "MPI_Init_thread".
  BoundedCall(std::string call, std::chrono::milliseconds bound);
  ~BoundedCall();
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

 private:
  void watch();
  [[noreturn]] void give_up() const;

  const std::string call_;
  const std::chrono::milliseconds bound_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
  std::thread thread_;  // last, as it uses all members above
};

}  // namespace ddprun::comm
