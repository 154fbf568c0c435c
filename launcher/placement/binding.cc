#include "launcher/placement/binding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "common/error.h"
#include "launcher/placement/gpu_binding.h"

namespace ddprun {
namespace {

struct BindingName {
  Binding binding;
  std::string_view option;
  std::string_view value;
};
constexpr std::array<BindingName, 8> binding_names = {{
    {Binding::cores, "bind", "cores"},
    {Binding::l3, "bind", "l3"},
    {Binding::numa, "bind", "numa"},
    {Binding::socket, "bind", "socket"},
    {Binding::gpu_node, "numa_binding", "node"},
    {Binding::gpu_socket, "numa_binding", "socket"},
    {Binding::gpu_exclusive, "numa_binding", "exclusive"},
    {Binding::gpu_core_complex, "numa_binding", "core-complex"},
}};

Binding find_binding(std::string_view option, std::string_view value) {
  if (value.empty() || value == "none") return Binding::none;
  for (const auto& row : binding_names)
    if (row.option == option && row.value == value) return row.binding;
  throw make_error(Errc::usage, "--{} = {}: unknown", option, value);
}

// Indices into Topology::cores.
using Cores = std::vector<std::size_t>;

// The cores that share the cache, NUMA node or socket of a given core.
Cores domain_of(const Topology& machine, std::size_t core, Binding binding) {
  const auto& own = machine.cores[core];
  Cores domain;
  for (std::size_t i = 0; i < machine.cores.size(); ++i) {
    const auto& other = machine.cores[i];
    const bool together = binding == Binding::l3     ? other.node == own.node && other.cache == own.cache
                          : binding == Binding::numa ? other.node == own.node
                                                     : other.package == own.package;
    if (together) domain.push_back(i);
  }
  return domain;
}

// Part i of n equal parts; the first parts get the remainder. With more parts than cores, several get the same core.
Cores part_of(const Cores& cores, std::size_t i, std::size_t n) {
  const std::size_t each = cores.size() / n;
  const std::size_t left_over = cores.size() % n;
  if (each == 0) return {cores[i * cores.size() / n]};
  const std::size_t begin = i * each + std::min(i, left_over);
  const std::size_t end = begin + each + (i < left_over ? 1 : 0);
  return {cores.begin() + static_cast<std::ptrdiff_t>(begin), cores.begin() + static_cast<std::ptrdiff_t>(end)};
}

// The workers whose GPUs are attached to one NUMA node, and its cores.
struct GpuNode {
  std::vector<std::size_t> workers;
  Cores cores;
};

// Returns one for each NUMA node if every worker has a GPU with a known node and that node has usable cores; otherwise
// a single one with all workers and cores.
std::vector<GpuNode> gpu_nodes(const Topology& machine, std::size_t workers) {
  std::map<int, GpuNode> by_node;
  for (std::size_t worker = 0; worker < workers && worker < machine.gpus.size(); ++worker)
    if (const auto node = machine.gpus[worker].node) by_node[*node].workers.push_back(worker);
  GpuNode all;
  for (std::size_t i = 0; i < machine.cores.size(); ++i) {
    all.cores.push_back(i);
    if (const auto found = by_node.find(machine.cores[i].node); found != by_node.end())
      found->second.cores.push_back(i);
  }
  std::size_t placed = 0;
  std::vector<GpuNode> result;
  for (auto& [number, node] : by_node) {
    if (!node.cores.empty()) placed += node.workers.size();
    result.push_back(std::move(node));
  }
  if (placed == workers) return result;
  for (std::size_t worker = 0; worker < workers; ++worker) all.workers.push_back(worker);
  return {all};
}

std::vector<Cores> bind_workers(const Topology& machine, std::size_t workers, Binding binding) {
  std::vector<Cores> result(workers);
  for (const auto& node : gpu_nodes(machine, workers)) {
    const std::size_t members = node.workers.size();
    for (std::size_t i = 0; i < members; ++i) {
      auto& cores = result[node.workers[i]];
      // Other bindings give it the cache, node or socket in which its equal part would begin.
      cores = binding == Binding::cores ? part_of(node.cores, i, members)
                                        : domain_of(machine, node.cores[i * node.cores.size() / members], binding);
    }
  }
  return result;
}

CpuList cpus_of(const Topology& machine, const Cores& cores) {
  CpuList cpus;
  for (const auto core : cores)
    cpus.insert(cpus.end(), machine.cores[core].cpus.begin(), machine.cores[core].cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::vector<int> nodes_of(const Topology& machine, const Cores& cores) {
  std::set<int> nodes;
  for (const auto core : cores) nodes.insert(machine.cores[core].node);
  return {nodes.begin(), nodes.end()};
}

// The number of workers on each core.
std::vector<int> load_of(const Topology& machine, const std::vector<Cores>& sets) {
  std::vector<int> load(machine.cores.size());
  for (const auto& set : sets)
    for (const auto core : set) ++load[core];
  return load;
}

int threads_for(const Cores& cores, const std::vector<int>& load, double quota_share) {
  double share = 0;
  for (const auto core : cores) share += 1.0 / load[core];
  constexpr double rounding = 1e-6;  // 3 * (1 / 3) may be less than 1
  return std::max(1, static_cast<int>(std::floor(std::min(share, quota_share) + rounding)));
}

}  // namespace

Binding parse_binding(std::string_view bind, std::string_view numa_binding) {
  const auto by_bind = find_binding("bind", bind);
  const auto by_numa_binding = find_binding("numa_binding", numa_binding);
  if (by_bind != Binding::none && by_numa_binding != Binding::none)
    throw make_error(Errc::usage, "--bind = {} and --numa_binding = {} exclude each other", bind, numa_binding);
  return by_bind != Binding::none ? by_bind : by_numa_binding;
}

std::string binding_text(Binding binding) {
  for (const auto& row : binding_names)
    if (row.binding == binding) return fmt::format("{} = {}", row.option, row.value);
  return "none";
}

Division divide(const Topology& machine, int workers, Binding binding, std::optional<double> quota) {
  const auto count = static_cast<std::size_t>(workers);
  Cores all(machine.cores.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  Division division;
  // An empty set means that the worker is not bound.
  std::vector<Cores> bound(count);
  if (binding >= Binding::gpu_node)
    bound = bind_to_gpus(machine, count, binding, division.notices);
  else if (binding != Binding::none)
    bound = bind_workers(machine, count, binding);
  auto used = bound;
  for (auto& cores : used)
    if (cores.empty()) cores = all;

  const auto load = load_of(machine, used);
  const double quota_share = quota ? *quota / workers : static_cast<double>(all.size());
  for (std::size_t i = 0; i < count; ++i)
    division.workers.push_back({.cpus = cpus_of(machine, bound[i]),
                                .nodes = nodes_of(machine, used[i]),
                                .gpu = i < machine.gpus.size() ? std::optional(machine.gpus[i]) : std::nullopt,
                                .threads = threads_for(used[i], load, quota_share)});
  if (binding == Binding::cores && *std::max_element(load.begin(), load.end()) > 1)
    division.notices.push_back(
        fmt::format("--bind = cores: more workers ({}) than cores ({}); several share one", workers, all.size()));
  return division;
}

}  // namespace ddprun
