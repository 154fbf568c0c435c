#include "launcher/placement/gpus.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <utility>

#include "launcher/placement/small_file.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

struct Device {
  std::string address{};
  std::string uuid{};
  std::optional<int> minor{};  // that of its device file
};

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// The names of a folder's entries, sorted (PCI addresses have a fixed width).
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Takes the value of a line such as "GPU UUID:   GPU-1a2b...".
std::optional<std::string> value_after(std::string_view line, std::string_view label) {
  if (!line.starts_with(label)) return std::nullopt;
  const auto begin = line.find_first_not_of(" \t", label.size());
  return std::string(begin == std::string_view::npos ? ""
                                                     : line.substr(begin, line.find_last_not_of(" \t") + 1 - begin));
}

std::vector<Device> known_to_driver(const fs::path& root) {
  std::vector<Device> devices;
  const auto folder = root / "proc/driver/nvidia/gpus";
  for (const auto& address : names_in(folder)) {
    Device device{.address = address};
    std::ifstream file(folder / address / "information");
    for (std::string line; std::getline(file, line);) {
      if (const auto uuid = value_after(line, "GPU UUID:")) device.uuid = *uuid;
      if (const auto minor = value_after(line, "Device Minor:")) device.minor = whole_number(*minor);
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

// NVIDIA's display controllers that use its driver: CUDA cannot use one that is passed to a guest or has no driver.
std::vector<Device> on_pci_bus(const fs::path& root) {
  std::vector<Device> devices;
  const auto folder = root / "sys/bus/pci/devices";
  for (const auto& address : names_in(folder)) {
    if (first_line(folder / address / "vendor") != "0x10de") continue;
    if (!first_line(folder / address / "class").value_or("").starts_with("0x03")) continue;
    std::error_code ignored;
    if (fs::read_symlink(folder / address / "driver", ignored).filename() == "nvidia")
      devices.push_back({.address = address});
  }
  return devices;
}

std::vector<int> device_files(const fs::path& root) {
  std::vector<int> minors;
  for (const auto& name : names_in(root / "dev"))
    if (name.starts_with("nvidia"))
      if (const auto minor = whole_number(std::string_view(name).substr(6))) minors.push_back(*minor);
  std::sort(minors.begin(), minors.end());
  return minors;
}

std::vector<Device> devices_of_machine(const fs::path& root) {
  const auto files = device_files(root);
  auto devices = known_to_driver(root);
  if (devices.empty()) devices = on_pci_bus(root);
  if (devices.empty())
    for (const int minor : files) devices.push_back({.minor = minor});
  std::erase_if(devices, [&](const Device& device) {
    return !files.empty() && device.minor && !std::binary_search(files.begin(), files.end(), *device.minor);
  });
  return devices;
}

// -1 in the file means unknown, which does not matter if there is only one node.
std::optional<int> node_of(const fs::path& root, const std::string& address) {
  if (address.empty()) return std::nullopt;
  if (const auto node = number_in(root / "sys/bus/pci/devices" / address / "numa_node"); node && *node >= 0)
    return static_cast<int>(*node);
  std::error_code ignored;
  return fs::exists(root / "sys/devices/system/node/node1", ignored) ? std::nullopt : std::optional(0);
}

const Device* find_device(const std::vector<Device>& devices, std::string_view name) {
  if (const auto index = whole_number(name))
    return *index < static_cast<int>(devices.size()) ? &devices[static_cast<std::size_t>(*index)] : nullptr;
  for (const auto& device : devices)
    if (!name.empty() && std::string_view(device.uuid).starts_with(name)) return &device;
  return nullptr;
}

}  // namespace

std::vector<Gpu> discover_gpus(const Environment& environment, const fs::path& root) {
  const auto devices = devices_of_machine(root);
  std::vector<Gpu> gpus;
  const auto list = environment.get("CUDA_VISIBLE_DEVICES");
  if (!list) {
    for (const auto& device : devices)
      gpus.push_back({std::to_string(gpus.size()), device.address, node_of(root, device.address)});
    return gpus;
  }
  for (std::string_view rest = *list; !rest.empty() && !devices.empty();) {
    const auto name = rest.substr(0, rest.find(','));
    const auto* device = find_device(devices, name);
    // Only the driver knows such a name: a MIG instance, or a UUID if the driver's files are not visible.
    const bool opaque = name.starts_with("MIG-") || (name.starts_with("GPU-") && devices.front().uuid.empty());
    if (!device && !opaque) break;
    gpus.push_back(
        {std::string(name), device ? device->address : "", device ? node_of(root, device->address) : std::nullopt});
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return gpus;
}

}  // namespace ddprun
