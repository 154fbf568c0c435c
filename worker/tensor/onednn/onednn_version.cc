#include "worker/tensor/onednn/onednn_version.h"

#include <dnnl.h>
#include <fmt/core.h>

namespace ddprun {

std::string onednn_version() {
  const auto* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace ddprun
