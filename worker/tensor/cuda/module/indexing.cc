#include "worker/tensor/cuda/module/indexing.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_indexing(DeviceApi& api) {
  api.gather = guarded<gather>;
  api.scatter_add = guarded<scatter_add>;
  api.scatter = guarded<scatter>;
  api.gather_rows = guarded<gather_rows>;
  api.scatter_add_rows = guarded<scatter_add_rows>;
}

}  // namespace ddprun::cuda
