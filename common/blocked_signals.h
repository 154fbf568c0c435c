#pragma once

#include <csignal>
#include <ctime>
#include <pthread.h>
#include <thread>
#include <utility>

namespace ddprun {

// While it lives, no signal is delivered to this thread, and threads started meanwhile inherit that. A SIGPIPE that a
// write of this thread to a closed socket raised meanwhile is dropped: the write's error says the same.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    block(all);
  }
  // SIGPIPE alone.
  struct OfPipes {};
  explicit BlockedSignals(OfPipes) {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    block(pipe);
  }
  ~BlockedSignals() {
    if (!pipe_was_pending_) {
      sigset_t pipe;
      sigemptyset(&pipe);
      sigaddset(&pipe, SIGPIPE);
      const timespec at_once{};
      sigtimedwait(&pipe, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  void block(const sigset_t& signals) {
    pthread_sigmask(SIG_BLOCK, &signals, &previous_);
    sigset_t pending;
    sigpending(&pending);
    pipe_was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  }

  sigset_t previous_;
  bool pipe_was_pending_ = false;
};

// A helper thread that leaves the process's signals to the threads of the program.
template <class Body>
std::thread start_signal_free_thread(Body body) {
  const BlockedSignals blocked;
  return std::thread(std::move(body));
}

}  // namespace ddprun
