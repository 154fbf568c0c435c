#include "worker/trainer/config/group_settings.h"

#include <chrono>
#include <cstddef>
#include <string>

#include <fmt/format.h>

#include "worker/trainer/config/device_settings.h"

namespace ddprun::trainer {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

// Ranks have other numbers in a group of some of the job's ranks.
std::string label_in_groups(const TrainConfig& config, const WorkerEnv& place, Device device) {
  if (device.type == DeviceType::cuda) return device_names(config, device);
  const auto label = mesh_label(config, place);
  return label.empty() ? label : fmt::format("worker {}: {}", place.rank, label);
}

}  // namespace

std::string mesh_label(const TrainConfig& config, const WorkerEnv& place) {
  if (axes_in_use(config.parallel.ranks).empty() || place.world_size == 1) return "";
  return naming_mesh_key(config.parallel,
                         [&] { return mesh_place(mesh_axes(config.parallel.ranks), place.world_size, place.rank); });
}

std::chrono::milliseconds group_timeout(const TrainConfig& config) {
  return milliseconds(config.dist.timeout);
}

InitOptions init_options(const TrainConfig& config, const WorkerEnv& place, Device device) {
  const auto& dist = config.dist;
  return {.backend = dist.backend,
          .config = {.timeout = group_timeout(config),
                     .freeze_bound = milliseconds(dist.freeze_bound),
                     .staging_bytes = static_cast<std::size_t>(dist.staging_kb) * 1024,
                     .label = label_in_groups(config, place, device),
                     .device = device.type == DeviceType::cuda ? std::optional(device.index) : std::nullopt},
          .env = place};
}

}  // namespace ddprun::trainer
