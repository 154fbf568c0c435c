#pragma once

namespace ddprun::comm {

// What a loop that waits awake does between two looks: leaves the core's resources to its neighbour for a moment.
inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ddprun::comm
