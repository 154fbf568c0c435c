#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ddprun::trainer {

// Receives preemption requests: a signal by which a scheduler, or ddprun on its behalf, asks this process to save its
// state and stop. The training loop asks requested() once a step.
//
// No signal handler ever runs. oneDNN's generated code uses the stack pointer for data of its own, so the frame of a
// handler that the kernel pushes onto a thread inside it overwrites the heap. The signal is blocked in every thread,
// and a thread of this object, which blocks all signals, reads it through signalfd(2).
//
// Ownership: construct one at the start of main, before anything starts a thread: threads inherit the signal mask. One
//   at a time in a process. The destructor discards pending requests and restores the mask of its thread, which has to
//   be the constructor's. Children get the original mask back from fork(); posix_spawn(3), system(3) and popen(3) run
//   no fork handlers, so give posix_spawnattr_setsigmask(3) a mask without the signal. A child must not destroy the
//   object.
// Threads: any thread may call requested() and requests().
// Errors: Errc::usage for an unknown name, and when another thread exists that does not block the signal; Errc::io when
//   the system refuses a descriptor or a thread.
// Units: requests() counts signals that were read. Signals of one number that arrive while one is pending
//   merge into one (POSIX). They have to be sent to the process:
//   one that is sent to a single thread (raise(3), pthread_kill(3)) stays
//   pending.
class PreemptionListener {
 public:
  // name: one of preempt_signal_names(): "USR1", "USR2", "TERM", or "none", which receives nothing.
  explicit PreemptionListener(const std::string& name);
  ~PreemptionListener();
  PreemptionListener(const PreemptionListener&) = delete;
  PreemptionListener& operator=(const PreemptionListener&) = delete;

  bool requested() const { return requests() > 0; }
  std::int64_t requests() const;

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;  // null for "none"
};

}  // namespace ddprun::trainer
