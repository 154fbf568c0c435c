#include "ddprun/common/error.h"
#include "ddprun/worker/comm/nccl/nccl_group.h"

namespace ddprun::comm {

bool nccl_available() {
  return false;
}

std::optional<int> device_of(const void*) {
  return std::nullopt;
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions&) {
  throw Error(Errc::unsupported,
              "this build has no NCCL back end (dist.backend = nccl; -DDDPRUN_CUDA=ON builds it): use gloo");
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options, int, const char*) {
  return make_nccl_group(options);
}

}  // namespace ddprun::comm
