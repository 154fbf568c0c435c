#include "worker/trainer/state/train_device.h"

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "worker/trainer/config/device_settings.h"

namespace ddprun::trainer {
namespace {

// Asks cheaply, since a module opens libraries of hundreds of megabytes.
bool may_have_a_device() {
  const char* const emulator = std::getenv("DDPRUN_CUDA_EMULATOR");
  if (emulator != nullptr && *emulator != '\0') return true;
  std::error_code ignored;
  return std::filesystem::exists("/dev/nvidiactl", ignored) || std::filesystem::exists("/dev/dxg", ignored);
}

int needed_devices() {
  const int devices = cuda_device_count();
  if (devices > 0) return devices;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  throw make_error(Errc::unsupported, "CUDA finds no device on host {}{}", local_host_name(),
                   visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES = '{}')", visible));
}

Device device_of_rank(int devices, const WorkerEnv& place) {
  return {DeviceType::cuda, place.local_rank % devices};
}

Device first_of_named(const TrainConfig::Parallel& parallel, const WorkerEnv& place) {
  if (place.world_size > 1)
    throw make_error(Errc::usage,
                     "parallel.devices = {}: CUDA devices are named for a job of one process, this one has {}; use "
                     "train.device = cuda alone",
                     parallel.devices, place.world_size);
  const int devices = needed_devices();
  const auto named = devices_of(parallel);
  for (const Device device : named)
    if (device.index >= devices)
      throw make_error(Errc::usage, "parallel.devices = {}: there is no {}: this process has {} CUDA device{}",
                       parallel.devices, to_string(device), devices, devices == 1 ? "" : "s");
  return named.front();
}

}  // namespace

Device train_device(const TrainConfig& config, const WorkerEnv& place) {
  const auto& asked = config.train.device;
  if (names_cuda_devices(config.parallel)) return first_of_named(config.parallel, place);
  if (asked == "cpu") return {};
  if (asked == "cuda") return device_of_rank(needed_devices(), place);
  if (!config.parallel.devices.empty() || !may_have_a_device() || !runs_on_devices(config)) return {};
  try {
    const int devices = cuda_device_count();
    return devices > 0 ? device_of_rank(devices, place) : Device{};
  } catch (const Error& error) {
    if (place.rank == 0) log::info("train.device = auto is the CPU: {}", error.what());
    return {};
  }
}

void apply_tf32(const TrainConfig& config, Device device) {
  if (device.type == DeviceType::cpu) return;
  try {
    allow_tf32(device, config.train.tf32);
  } catch (const Error& error) {
    throw make_error(Errc::usage, "train.tf32 = true: {}", error.what());
  }
}

Device device_of(const nn::Module& model) {
  const auto parameters = model.named_parameters();
  if (parameters.empty()) return {};
  const Device device = parameters.front().second.device();
  return device.type == DeviceType::cuda ? device : Device{};
}

}  // namespace ddprun::trainer
