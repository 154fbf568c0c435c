#include "launcher/placement/topology.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "launcher/placement/small_file.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

std::optional<CpuList> list_in(const fs::path& path) {
  const auto line = first_line(path);
  return line ? parse_cpu_list(*line) : std::nullopt;
}

fs::path cpu_folder(const fs::path& root, int cpu) {
  return root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu));
}

// All hardware threads of a processor's core, whether they may be used or not.
CpuList threads_of_core(const fs::path& root, int cpu) {
  auto threads = list_in(cpu_folder(root, cpu) / "topology/thread_siblings_list");
  return threads && contains(*threads, cpu) ? *threads : CpuList{cpu};
}

// The NUMA node of each processor.
std::map<int, int> read_nodes(const fs::path& root) {
  std::map<int, int> node_of;
  const auto folder = root / "sys/devices/system/node";
  for (const int node : list_in(folder / "online").value_or(CpuList{}))
    for (const int cpu : list_in(folder / ("node" + std::to_string(node)) / "cpulist").value_or(CpuList{}))
      node_of[cpu] = node;
  return node_of;
}

// The last-level cache of a processor, identified by the first processor that shares it; -1: unknown.
int last_cache(const fs::path& root, int cpu) {
  long highest = 0;
  int first = -1;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cpu_folder(root, cpu) / "cache", ignored)) {
    if (!entry.path().filename().string().starts_with("index")) continue;
    const long level = number_in(entry.path() / "level").value_or(0);
    if (level <= highest || first_line(entry.path() / "type") == "Instruction") continue;
    const auto sharing = list_in(entry.path() / "shared_cpu_list");
    if (!sharing || sharing->empty()) continue;
    highest = level;
    first = sharing->front();
  }
  return first;
}

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

// The least quota of the group and all groups above it. In a container the path may be the host's; its upper levels do
// not exist there, and only the root does.
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

std::vector<Core> read_cores(const CpuList& allowed, const fs::path& root) {
  const auto node_of = read_nodes(root);
  std::vector<Core> cores;
  std::set<int> seen;
  for (const int cpu : allowed) {
    if (seen.contains(cpu)) continue;
    Core core{.cpus = intersection(threads_of_core(root, cpu), allowed)};
    seen.insert(core.cpus.begin(), core.cpus.end());
    const auto node = node_of.find(cpu);
    core.node = node == node_of.end() ? 0 : node->second;
    const long package = number_in(cpu_folder(root, cpu) / "topology/physical_package_id").value_or(0);
    core.package = static_cast<int>(std::max(0L, package));
    core.cache = last_cache(root, cpu);
    if (core.cache < 0) core.cache = -1 - core.node;  // unknown: one cache per node
    cores.push_back(std::move(core));
  }
  std::sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) {
    return std::tie(a.package, a.node, a.cache, a.cpus) < std::tie(b.package, b.node, b.cache, b.cpus);
  });
  return cores;
}

std::size_t count_cores(const CpuList& allowed, const fs::path& root) {
  if (number_in(root / "sys/devices/system/cpu/smt/active") == 0) return allowed.size();
  std::set<int> seen;
  std::size_t cores = 0;
  for (const int cpu : allowed) {
    if (seen.contains(cpu)) continue;
    ++cores;
    const auto threads = threads_of_core(root, cpu);
    seen.insert(threads.begin(), threads.end());
  }
  return cores;
}

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
