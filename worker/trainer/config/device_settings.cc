#include "worker/trainer/config/device_settings.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker/trainer/config/refusals.h"

namespace ddprun::trainer {

std::vector<Device> devices_of(const TrainConfig::Parallel& config) {
  std::vector<Device> devices;
  for (const auto& name : parse_names(config.devices)) devices.push_back(parse_device(name));
  return devices;
}

bool names_cuda_devices(const TrainConfig::Parallel& config) {
  return std::ranges::any_of(devices_of(config), [](Device device) { return device.type == DeviceType::cuda; });
}

bool is_divided_among_cuda_devices(const TrainConfig::Parallel& config) {
  return config.strategy == "ddp" && devices_of(config).size() > 1 && names_cuda_devices(config);
}

bool asks_for_cuda(const TrainConfig& config) {
  return config.train.device == "cuda" || names_cuda_devices(config.parallel);
}

std::string device_names(const TrainConfig& config, Device device) {
  if (!names_cuda_devices(config.parallel)) return to_string(device);
  return fmt::format("{}", fmt::join(parse_names(config.parallel.devices), ", "));
}

bool runs_on_devices(const TrainConfig& config) {
  return std::ranges::none_of(refusals(), [&](const Refusal& refusal) {
    return refusal.one.key == "train.device" &&
           std::ranges::any_of(refusal.others, [&](const SettingValues& other) { return other.are_set(config); });
  });
}

}  // namespace ddprun::trainer
