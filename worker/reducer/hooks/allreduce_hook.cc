#include "ddprun/worker/reducer/hooks/allreduce_hook.h"

namespace ddprun {

std::unique_ptr<CommHook> make_allreduce_hook(ProcessGroup& group) {
  return make_comm_hook([&group](const GradBucket& bucket) { return group.allreduce(bucket.span, ReduceOp::average); });
}

}  // namespace ddprun
