#pragma once

// DDPRUN_UNROLL is for loops of few iterations over a local array, which nvcc keeps in registers only where every index
// is a constant. DDPRUN_NO_UNROLL is for loops whose iterations, side by side, would need more registers than there
// are. A C++ compiler decides for itself.
#if defined(__CUDACC__)
#define DDPRUN_UNROLL _Pragma("unroll")
#define DDPRUN_NO_UNROLL _Pragma("unroll 1")
#else
#define DDPRUN_UNROLL
#define DDPRUN_NO_UNROLL
#endif
