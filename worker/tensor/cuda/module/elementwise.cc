#include "worker/tensor/cuda/module/elementwise.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_elementwise(DeviceApi& api) {
  api.unary = guarded<unary>;
  api.unary_gradient = guarded<unary_gradient>;
  api.binary = guarded<binary>;
  api.binary_gradient = guarded<binary_gradient>;
  api.compare = guarded<compare>;
  api.where = guarded<where>;
  api.copy = guarded<copy>;
  api.cast_all = guarded<cast_all>;
  api.fill = guarded<fill>;
  api.dropout = guarded<dropout>;
}

}  // namespace ddprun::cuda
