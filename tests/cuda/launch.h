#pragma once

// Launches of the kernels of this folder: by CUDA where nvcc compiles them, and thread by thread on the host where a
// C++ compiler does.
#if defined(__CUDACC__)

namespace ddprun::test {

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, Arguments... arguments) {
  kernel<<<blocks, threads>>>(arguments...);
}

}  // namespace ddprun::test

#else

#define __global__
#define __device__
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
inline thread_local Dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace ddprun::test {

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, Arguments... arguments) {
  gridDim = {blocks};
  blockDim = {threads};
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(arguments...);
}

}  // namespace ddprun::test

#endif
