#pragma once

#include <chrono>
#include <sched.h>
#include <thread>

namespace ddprun::comm {

// What a thread does between two tests of a request: it polls, then leaves the core to others, then sleeps for longer
// and longer, as a peer may compute for seconds. One thread.
class Polling {
 public:
  void pause() {
    if (++count_ <= polls) return;
    if (count_ <= polls + yields) {
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    if (sleep_ < longest) sleep_ *= 2;
  }

 private:
  static constexpr int polls = 100, yields = 1000;
  static constexpr std::chrono::microseconds longest{500};

  int count_ = 0;
  std::chrono::microseconds sleep_{20};
};

}  // namespace ddprun::comm
