#include "worker/tensor/cuda/module/group_norm.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_group_norm(DeviceApi& api) {
  api.group_norm = guarded<group_norm>;
  api.group_norm_backward = guarded<group_norm_backward>;
  api.row_norm_backward = guarded<row_norm_backward>;
}

}  // namespace ddprun::cuda
