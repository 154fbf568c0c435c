#include "ddprun/launcher/placement/binding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "ddprun/common/error.h"
#include "ddprun/launcher/placement/gpu_binding.h"

namespace ddprun {
namespace {

struct Word {
  Binding binding;
  std::string_view option;
  std::string_view word;
};
constexpr std::array<Word, 8> words = {{
    {Binding::cores, "bind", "cores"},
    {Binding::l3, "bind", "l3"},
    {Binding::numa, "bind", "numa"},
    {Binding::socket, "bind", "socket"},
    {Binding::gpu_node, "numa_binding", "node"},
    {Binding::gpu_socket, "numa_binding", "socket"},
    {Binding::gpu_exclusive, "numa_binding", "exclusive"},
    {Binding::gpu_core_complex, "numa_binding", "core-complex"},
}};

Binding find_word(std::string_view option, std::string_view word) {
  if (word.empty() || word == "none") return Binding::none;
  for (const auto& row : words)
    if (row.option == option && row.word == word) return row.binding;
  throw make_error(Errc::usage, "--{} = {}: unknown", option, word);
}

// Cores as positions in Topology::cores.
using Cores = std::vector<std::size_t>;

// The cores that are one with a given core, at the level that the word names.
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

// Member number i of n gets the cores [i * C / n, (i + 1) * C / n) but for rounding: the first ones get one more. With
// more members than cores, several have the same one.
Cores part_of(const Cores& cores, std::size_t i, std::size_t n) {
  const std::size_t each = cores.size() / n;
  const std::size_t left_over = cores.size() % n;
  if (each == 0) return {cores[i * cores.size() / n]};
  const std::size_t begin = i * each + std::min(i, left_over);
  const std::size_t end = begin + each + (i < left_over ? 1 : 0);
  return {cores.begin() + static_cast<std::ptrdiff_t>(begin), cores.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Workers that divide some cores among themselves.
struct Household {
  std::vector<std::size_t> workers;
  Cores cores;
};

// By the nodes of the workers' GPUs where they all tell one with usable cores, else a single one.
std::vector<Household> households(const Topology& machine, std::size_t workers) {
  std::map<int, Household> by_node;
  for (std::size_t worker = 0; worker < workers && worker < machine.gpus.size(); ++worker)
    if (const auto node = machine.gpus[worker].node) by_node[*node].workers.push_back(worker);
  Household all;
  for (std::size_t i = 0; i < machine.cores.size(); ++i) {
    all.cores.push_back(i);
    if (const auto home = by_node.find(machine.cores[i].node); home != by_node.end()) home->second.cores.push_back(i);
  }
  std::size_t placed = 0;
  std::vector<Household> result;
  for (auto& [node, home] : by_node) {
    if (!home.cores.empty()) placed += home.workers.size();
    result.push_back(std::move(home));
  }
  if (placed == workers) return result;
  for (std::size_t worker = 0; worker < workers; ++worker) all.workers.push_back(worker);
  return {all};
}

std::vector<Cores> bind_workers(const Topology& machine, std::size_t workers, Binding binding) {
  std::vector<Cores> result(workers);
  for (const auto& home : households(machine, workers)) {
    const std::size_t members = home.workers.size();
    for (std::size_t i = 0; i < members; ++i) {
      auto& cores = result[home.workers[i]];
      // Where its equal part would begin is where it lives.
      cores = binding == Binding::cores ? part_of(home.cores, i, members)
                                        : domain_of(machine, home.cores[i * home.cores.size() / members], binding);
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

// Workers on each core.
std::vector<int> load_of(const Topology& machine, const std::vector<Cores>& sets) {
  std::vector<int> load(machine.cores.size());
  for (const auto& set : sets)
    for (const auto core : set) ++load[core];
  return load;
}

int threads_for(const Cores& cores, const std::vector<int>& load, double quota_share) {
  double share = 0;
  for (const auto core : cores) share += 1.0 / load[core];
  constexpr double rounding = 1e-6;  // three thirds are a whole
  return std::max(1, static_cast<int>(std::floor(std::min(share, quota_share) + rounding)));
}

}  // namespace

Binding parse_binding(std::string_view bind, std::string_view numa_binding) {
  const auto ours = find_word("bind", bind);
  const auto torchruns = find_word("numa_binding", numa_binding);
  if (ours != Binding::none && torchruns != Binding::none)
    throw make_error(Errc::usage, "--bind = {} and --numa_binding = {} exclude each other", bind, numa_binding);
  return ours != Binding::none ? ours : torchruns;
}

std::string binding_text(Binding binding) {
  for (const auto& row : words)
    if (row.binding == binding) return fmt::format("{} = {}", row.option, row.word);
  return "none";
}

Division divide(const Topology& machine, int workers, Binding binding, std::optional<double> quota) {
  const auto count = static_cast<std::size_t>(workers);
  Cores all(machine.cores.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  Division division;
  // An empty set stands for a worker that is not bound.
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
