#pragma once

#include <csignal>
#include <ctime>
#include <pthread.h>
#include <thread>
#include <utility>

namespace ddprun {

// Blocks signals of the constructing thread for a scope. Threads and processes that it creates in the scope inherit the
// mask. The destructor discards a SIGPIPE that became pending in the scope, since the write that raised it also returns
// EPIPE, and restores the previous mask.
//
// Threads: construct and destroy it on one thread; scopes may nest. Errors: none.
class BlockedSignals {
 public:
  // Blocks all signals.
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    block(all);
  }
  // Blocks only SIGPIPE.
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
      const timespec no_wait{};
      sigtimedwait(&pipe, nullptr, &no_wait);
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

// Starts a helper thread that blocks all signals, so that the program's own threads handle them.
template <class Body>
std::thread start_signal_free_thread(Body body) {
  const BlockedSignals blocked;
  return std::thread(std::move(body));
}

}  // namespace ddprun
