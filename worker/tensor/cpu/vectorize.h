#pragma once

#include "worker/tensor/sanitized.h"

// DDPRUN_VECTORIZED before a function: it is compiled for several vector widths, of which the widest that the processor
// has is chosen when the program starts. The sources are built with contraction off, so every width rounds alike as
// long as the loop sums nothing.
#if defined(__x86_64__) && !defined(DDPRUN_SANITIZED) && \
    !defined(__clang__)  // the choice runs before a sanitizer is ready
#define DDPRUN_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DDPRUN_VECTORIZED
#endif
