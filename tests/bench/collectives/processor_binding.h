#pragma once

#include <sched.h>

namespace ddprun::bench {

// Binds the calling thread to its rank's processor, or restores the affinity it had when this was created. Threads that
// it starts while bound stay bound.
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
