#pragma once

#include <pthread.h>

namespace ddprun::bench {

// A barrier for processes that are forked after its creation. Waiting processes sleep, so that threads that still have
// work get the processors.
class SleepingBarrier {
 public:
  explicit SleepingBarrier(int ranks);
  SleepingBarrier(const SleepingBarrier&) = delete;
  SleepingBarrier& operator=(const SleepingBarrier&) = delete;
  ~SleepingBarrier();

  // Returns once every rank has called it.
  void wait() { ::pthread_barrier_wait(barrier_); }

 private:
  pthread_barrier_t* barrier_;  // in shared memory
};

}  // namespace ddprun::bench
