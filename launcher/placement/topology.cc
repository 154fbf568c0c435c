#include "ddprun/launcher/placement/topology.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "ddprun/launcher/placement/small_file.h"

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

// All hardware threads of a processor's core, allowed or not.
CpuList threads_of_core(const fs::path& root, int cpu) {
  auto threads = list_in(cpu_folder(root, cpu) / "topology/thread_siblings_list");
  return threads && contains(*threads, cpu) ? *threads : CpuList{cpu};
}

// By the number of each processor, its node.
std::map<int, int> read_nodes(const fs::path& root) {
  std::map<int, int> node_of;
  const auto folder = root / "sys/devices/system/node";
  for (const int node : list_in(folder / "online").value_or(CpuList{}))
    for (const int cpu : list_in(folder / ("node" + std::to_string(node)) / "cpulist").value_or(CpuList{}))
      node_of[cpu] = node;
  return node_of;
}

// The first processor behind a processor's last level of cache stands for that cache; -1: not known.
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
    if (core.cache < 0) core.cache = -1 - core.node;  // unknown: the node is as near as it gets
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

}  // namespace ddprun
