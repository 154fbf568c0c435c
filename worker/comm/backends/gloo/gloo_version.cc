#include "worker/comm/backends/gloo/gloo_version.h"

#include <fmt/core.h>
#include <gloo/config.h>

namespace ddprun::comm {

std::string gloo_version() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

}  // namespace ddprun::comm
