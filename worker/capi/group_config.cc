#include "worker/capi/group_config.h"

#include <algorithm>
#include <chrono>

namespace ddprun::capi {

CommConfig group_config(const ddprun_group_options& options) {
  CommConfig config;
  if (options.timeout_ms > 0) config.timeout = std::chrono::milliseconds(options.timeout_ms);
  if (options.freeze_bound_ms != 0)
    config.freeze_bound = std::chrono::milliseconds(std::max<std::int64_t>(options.freeze_bound_ms, 0));
  config.label = text_of(options.label);
  config.local_address = text_of(options.network_interface);
  return config;
}

}  // namespace ddprun::capi
