#include "worker/tensor/cuda/module/reduction.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_reductions(DeviceApi& api) {
  api.sum = guarded<sum>;
  api.max = guarded<max>;
  api.value_range = guarded<value_range>;
  api.softmax = guarded<softmax>;
  api.softmax_gradient = guarded<softmax_gradient>;
  api.add_bias = guarded<add_bias>;
  api.sum_to_bias = guarded<sum_to_bias>;
}

}  // namespace ddprun::cuda
