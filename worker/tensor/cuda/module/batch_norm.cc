#include "worker/tensor/cuda/module/batch_norm.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_batch_norm(DeviceApi& api) {
  api.batch_statistics = guarded<batch_statistics>;
  api.inverse_deviation = guarded<inverse_deviation>;
  api.batch_norm = guarded<batch_norm>;
  api.batch_norm_backward = guarded<batch_norm_backward>;
}

}  // namespace ddprun::cuda
