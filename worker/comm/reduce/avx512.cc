// Compiled for AVX-512: see CMakeLists.txt.
#include "worker/comm/reduce/loops.h"

namespace ddprun::comm {

const KernelVariant avx512_kernels = variant("avx512", [] {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_f16c();
});

}  // namespace ddprun::comm
