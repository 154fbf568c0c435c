#pragma once

#include <pthread.h>
#include <sched.h>

namespace ddprun::comm {

// While it lives, threads that this thread starts are scheduled as SCHED_BATCH: one that wakes up waits for the running
// thread to pause, instead of taking its place.
class BatchThreads {
 public:
  BatchThreads() {
    pthread_getschedparam(pthread_self(), &policy_, &parameters_);
    if (policy_ == SCHED_OTHER) set(SCHED_BATCH);
  }
  ~BatchThreads() {
    if (policy_ == SCHED_OTHER) set(SCHED_OTHER);
  }
  BatchThreads(const BatchThreads&) = delete;
  BatchThreads& operator=(const BatchThreads&) = delete;

 private:
  void set(int policy) { pthread_setschedparam(pthread_self(), policy, &parameters_); }

  int policy_ = SCHED_OTHER;
  sched_param parameters_{};
};

}  // namespace ddprun::comm
