#pragma once

namespace ddprun::comm {

// The processor's spin-wait hint, for use between two loads of a spin loop: frees execution resources for the sibling
// hardware thread.
inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ddprun::comm
