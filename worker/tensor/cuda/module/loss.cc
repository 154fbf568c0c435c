#include "worker/tensor/cuda/module/loss.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"
#include "worker/tensor/cuda/module/linear_loss.h"

namespace ddprun::cuda {

void add_losses(DeviceApi& api) {
  api.nll_loss = guarded<nll_loss>;
  api.nll_loss_backward = guarded<nll_loss_backward>;
  api.cross_entropy_backward = guarded<cross_entropy_backward>;
  api.linear_cross_entropy = guarded<linear_cross_entropy>;
  api.scale_by = guarded<scale_by>;
}

}  // namespace ddprun::cuda
