#include "ddprun/worker/trainer/group_settings.h"

#include <chrono>
#include <cstddef>

namespace ddprun::trainer {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

InitOptions init_options(const TrainConfig::Dist& dist, const WorkerEnv& place) {
  return {.backend = dist.backend,
          .config = {.timeout = milliseconds(dist.timeout),
                     .freeze_bound = milliseconds(dist.freeze_bound),
                     .staging_bytes = static_cast<std::size_t>(dist.staging_kb) * 1024},
          .env = place};
}

}  // namespace ddprun::trainer
