#include "ddprun/worker/comm/kernels/loops.h"

namespace ddprun::comm {

const KernelVariant plain_kernels = variant("plain", [] { return true; });

}  // namespace ddprun::comm
