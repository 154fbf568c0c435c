#include "ddprun/common/error.h"
#include "ddprun/worker/comm/nccl/nccl_group.h"

namespace ddprun::comm {

bool nccl_available() {
  return false;
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions&) {
  throw Error(Errc::unsupported,
              "this build has no NCCL back end (dist.backend = nccl; -DDDPRUN_CUDA=ON builds it): use gloo");
}

}  // namespace ddprun::comm
