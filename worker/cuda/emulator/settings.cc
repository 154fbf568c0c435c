#include "worker/cuda/emulator/settings.h"

#include <charconv>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>

namespace ddprun::cuda::emulator {
namespace {

std::string_view text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads the list as the driver does: devices up to the first entry that is none.
std::vector<int> visible(int devices, std::string_view list) {
  std::vector<int> numbers;
  while (!list.empty()) {
    const auto comma = list.find(',');
    const auto ordinal = number<int>(list.substr(0, comma));
    if (!ordinal || *ordinal < 0 || *ordinal >= devices) break;
    numbers.push_back(*ordinal);
    list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
  }
  return numbers;
}

}  // namespace

Settings read_settings() {
  Settings settings;
  settings.devices.resize(static_cast<std::size_t>(number<int>(text("DDPRUN_CUDA_EMULATOR")).value_or(1)));
  std::iota(settings.devices.begin(), settings.devices.end(), 0);
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr)
    settings.devices = visible(static_cast<int>(settings.devices.size()), text("CUDA_VISIBLE_DEVICES"));
  settings.memory = number<std::size_t>(text("DDPRUN_CUDA_EMULATOR_MEMORY")).value_or(settings.memory);
  settings.seed = number<std::uint64_t>(text("DDPRUN_CUDA_EMULATOR_SEED")).value_or(settings.seed);
  const std::string_view capability = text("DDPRUN_CUDA_EMULATOR_CAPABILITY");
  if (const auto dot = capability.find('.'); dot != capability.npos) {
    settings.major = number<int>(capability.substr(0, dot)).value_or(settings.major);
    settings.minor = number<int>(capability.substr(dot + 1)).value_or(settings.minor);
  }
  settings.driver = number<int>(text("DDPRUN_CUDA_EMULATOR_DRIVER")).value_or(settings.driver);
  settings.nccl = number<int>(text("DDPRUN_CUDA_EMULATOR_NCCL"));
  settings.cublaslt = number<int>(text("DDPRUN_CUDA_EMULATOR_CUBLASLT"));
  settings.cudnn = number<int>(text("DDPRUN_CUDA_EMULATOR_CUDNN"));
  settings.launch_blocking = number<int>(text("CUDA_LAUNCH_BLOCKING")).value_or(0) != 0;
  settings.counts_operations = text("DDPRUN_CUDA_EMULATOR_CLOCK") == "operations";
  settings.fail = text("DDPRUN_CUDA_EMULATOR_FAIL");
  return settings;
}

int shared_memory_limit(const Settings& settings) {
  if (settings.major >= 9) return 227 * 1024;
  if (settings.major == 8) return settings.minor == 0 ? 163 * 1024 : 99 * 1024;
  return 64 * 1024;
}

}  // namespace ddprun::cuda::emulator
