#include "ddprun/launcher/placement/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "ddprun/launcher/placement/small_file.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// "QUOTA PERIOD" in microseconds, or "max PERIOD".
std::optional<double> quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::optional<double> quota_v1(const fs::path& group) {
  const auto quota = number_in(group / "cpu.cfs_quota_us");
  const auto period = number_in(group / "cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Upwards from the group. In a container the path may be the host's: those levels are not there, its root is.
template <class Read>
void take_least(std::optional<double>& least, const fs::path& mount, fs::path group, Read read) {
  for (;; group = group.parent_path()) {
    if (const auto quota = read(mount / group.relative_path())) least = std::min(least.value_or(*quota), *quota);
    if (!group.has_relative_path()) return;
  }
}

bool names_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const auto name = controllers.substr(0, controllers.find(','));
    if (name == "cpu") return true;
    controllers.remove_prefix(std::min(controllers.size(), name.size() + 1));
  }
  return false;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  std::ifstream file(root / "proc/self/cgroup");
  const auto mount = root / "sys/fs/cgroup";
  for (std::string line; std::getline(file, line);) {  // "HIERARCHY:CONTROLLERS:PATH"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) take_least(least, mount, group, quota_v2);
    if (names_cpu(controllers)) take_least(least, mount / "cpu", group, quota_v1);
  }
  return least;
}

}  // namespace ddprun
