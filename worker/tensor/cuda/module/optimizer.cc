#include "ddprun/worker/tensor/cuda/module/optimizer.h"

#include "ddprun/worker/tensor/cuda/module/groups.h"
#include "ddprun/worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_optimizers(DeviceApi& api) {
  api.sgd_step = guarded<sgd_step>;
  api.adam_step = guarded<adam_step>;
}

}  // namespace ddprun::cuda
