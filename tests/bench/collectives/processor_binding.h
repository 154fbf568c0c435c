#pragma once

#include <sched.h>

namespace ddprun::bench {

// Binds the calling thread to its rank's processor, or leaves it as free as it was when this was made. Threads that it
// starts while bound stay so.
class ProcessorBinding {
 public:
  explicit ProcessorBinding(int rank);

  void bind(bool bound);

 private:
  const int rank_;
  cpu_set_t all_;
  bool bound_ = false;
};

}  // namespace ddprun::bench
