// Compiled for AVX2 and F16C: see CMakeLists.txt.
#include "worker/comm/reduce/loops.h"

namespace ddprun::comm {

const KernelVariant avx2_kernels = variant("avx2", [] { return __builtin_cpu_supports("avx2") && has_f16c(); });

}  // namespace ddprun::comm
