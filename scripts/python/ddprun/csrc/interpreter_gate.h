#pragma once

#include <condition_variable>
#include <mutex>
#include <unistd.h>

namespace ddprun_torch {

// Lets threads of this module call Python until the interpreter ends: a thread that waits for its lock afterwards
// crashes the process. Thread-safe.
class InterpreterGate {
 public:
  // Calls function(), unless the gate is closed, and returns whether it did.
  template <class Function>
  bool pass(Function function) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      ++inside_;
    }
    function();
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
    return true;
  }

  // Returns once no thread is inside. The caller must not hold the interpreter's lock.
  void close() {
    if (::getpid() != process_) return;  // a child that was forked has none of these threads
    std::unique_lock lock(mutex_);
    closed_ = true;
    empty_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  const pid_t process_ = ::getpid();
  std::mutex mutex_;  // guards the members below
  std::condition_variable empty_;
  bool closed_ = false;
  int inside_ = 0;
};

}  // namespace ddprun_torch
