#pragma once

// Marks a function that runs on the host and, compiled by nvcc, on a device as well. It is always inlined: a source
// that is compiled for a wider instruction set must not leave a copy that the linker may choose for the whole program.
#if defined(__CUDACC__)
#define DDPRUN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define DDPRUN_HOST_DEVICE __attribute__((always_inline)) inline
#endif
