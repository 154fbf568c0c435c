#include "worker/comm/reduce/loops.h"

namespace ddprun::comm {

const KernelVariant plain_kernels = variant("plain", [] { return true; });

}  // namespace ddprun::comm
