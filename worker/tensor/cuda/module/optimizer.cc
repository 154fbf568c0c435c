#include "worker/tensor/cuda/module/optimizer.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_optimizers(DeviceApi& api) {
  api.sgd_step = guarded<sgd_step>;
  api.adam_step = guarded<adam_step>;
  api.ema_step = guarded<ema_step>;
  api.square_sum = guarded<square_sum>;
  api.clip_to_norm = guarded<clip_to_norm>;
  api.clip_to_value = guarded<clip_to_value>;
  api.unscale = guarded<unscale>;
  api.decide_step = guarded<decide_step>;
}

}  // namespace ddprun::cuda
