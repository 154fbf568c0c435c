#include "worker/tensor/cuda/module/pooling.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_pooling(DeviceApi& api) {
  api.max_pool2d = guarded<max_pool2d>;
  api.max_pool2d_backward = guarded<max_pool2d_backward>;
  api.avg_pool2d = guarded<avg_pool2d>;
  api.avg_pool2d_backward = guarded<avg_pool2d_backward>;
  api.adaptive_avg_pool2d = guarded<adaptive_avg_pool2d>;
  api.adaptive_avg_pool2d_backward = guarded<adaptive_avg_pool2d_backward>;
}

}  // namespace ddprun::cuda
