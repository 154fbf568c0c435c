#pragma once

#include <pthread.h>

namespace ddprun::bench {

// Where the processes forked after it was made wait for each other asleep, so that threads which still have work to do
// get the processors.
class SleepingBarrier {
 public:
  explicit SleepingBarrier(int ranks);
  SleepingBarrier(const SleepingBarrier&) = delete;
  SleepingBarrier& operator=(const SleepingBarrier&) = delete;
  ~SleepingBarrier();

  // Returns once every rank has called it.
  void wait() { ::pthread_barrier_wait(barrier_); }

 private:
  pthread_barrier_t* barrier_;  // in memory of all
};

}  // namespace ddprun::bench
