#include "worker/tensor/cuda/module/attention.h"

#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {

void add_attention(DeviceApi& api) {
  api.attention = guarded<attention>;
  api.attention_backward = guarded<attention_backward>;
  api.merge_attention = guarded<merge_attention>;
}

}  // namespace ddprun::cuda
