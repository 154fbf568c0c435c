#include "tests/bench/collectives/sleeping_barrier.h"

#include <cerrno>
#include <sys/mman.h>

#include "common/error.h"

namespace ddprun::bench {

SleepingBarrier::SleepingBarrier(int ranks) {
  void* const memory =
      ::mmap(nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw make_error(Errc::io, "cannot map a barrier: {}", errno_text(errno));
  barrier_ = static_cast<pthread_barrier_t*>(memory);
  pthread_barrierattr_t attributes;
  ::pthread_barrierattr_init(&attributes);
  ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(barrier_, &attributes, static_cast<unsigned>(ranks));
  ::pthread_barrierattr_destroy(&attributes);
}

// The barrier is unmapped, but not destroyed: other processes may still be returning from it.
SleepingBarrier::~SleepingBarrier() {
  ::munmap(barrier_, sizeof(pthread_barrier_t));
}

}  // namespace ddprun::bench
