#include "worker/trainer/config/device_settings.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string setting_without_devices(const TrainConfig& c) {
  const auto& p = c.parallel;
  const auto text = [](auto value) { return fmt::format("{}", value); };
  const std::vector<std::pair<bool, std::string>> settings{
      {p.strategy == "parameter_server", "parallel.strategy = " + p.strategy},
      {p.tensor > 1, "parallel.tensor = " + text(p.tensor)},
      {p.pipeline > 1, "parallel.pipeline = " + text(p.pipeline)},
      {p.context > 1, "parallel.context = " + text(p.context)},
      {p.expert > 1, "parallel.expert = " + text(p.expert)},
      {p.zero > 0, "parallel.zero = " + text(p.zero)},
      {c.model.experts > 0, "model.experts = " + text(c.model.experts)},
      {c.train.shards > 0, "train.shards = " + text(c.train.shards)},
      {c.train.quantization_aware, "train.quantization_aware = true"},
      {c.optim.name != "sgd" && c.optim.name != "adam" && c.optim.name != "adamw", "optim.name = " + c.optim.name},
      {!c.optim.offload.empty(), "optim.offload = " + c.optim.offload.string()}};
  for (const auto& [on, setting] : settings)
    if (on) return setting;
  return "";
}

}  // namespace ddprun::trainer
