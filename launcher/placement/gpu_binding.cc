#include "launcher/placement/gpu_binding.h"

#include <algorithm>
#include <map>

#include "common/error.h"

namespace ddprun {
namespace {

using Cores = std::vector<std::size_t>;

Cores cores_of_node(const Topology& machine, int node) {
  Cores cores;
  for (std::size_t i = 0; i < machine.cores.size(); ++i)
    if (machine.cores[i].node == node) cores.push_back(i);
  return cores;
}

Cores cores_of_package(const Topology& machine, int package) {
  Cores cores;
  for (std::size_t i = 0; i < machine.cores.size(); ++i)
    if (machine.cores[i].package == package) cores.push_back(i);
  return cores;
}

// The position of a GPU among those of its NUMA node.
struct GpuPosition {
  std::size_t index = 0;
  std::size_t count = 0;
};

GpuPosition position_on_node(const Topology& machine, std::size_t gpu) {
  GpuPosition position;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    if (machine.gpus[i].node != machine.gpus[gpu].node) continue;
    if (i < gpu) ++position.index;
    ++position.count;
  }
  return position;
}

// Cores are ordered by number, not by cache, as in torchrun.
Cores exclusive_part(const Topology& machine, Cores cores, const GpuPosition& position, int node) {
  if (cores.size() < position.count)
    throw make_error(Errc::usage, "--numa_binding = exclusive: NUMA node {} has fewer cores ({}) than GPUs ({})", node,
                     cores.size(), position.count);
  std::sort(cores.begin(), cores.end(),
            [&](std::size_t a, std::size_t b) { return machine.cores[a].cpus < machine.cores[b].cpus; });
  const std::size_t each = cores.size() / position.count;
  const std::size_t left_over = cores.size() % position.count;
  const std::size_t begin = position.index * each + std::min(position.index, left_over);
  const std::size_t size = each + (position.index < left_over ? 1 : 0);
  const auto first = cores.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

std::size_t cpus_in(const Topology& machine, const Cores& cores) {
  std::size_t count = 0;
  for (const auto core : cores) count += machine.cores[core].cpus.size();
  return count;
}

// The largest come first, because this process may use only a part of some.
Cores core_complex(const Topology& machine, const Cores& cores, const GpuPosition& position) {
  std::map<int, Cores> by_cache;
  for (const auto core : cores) by_cache[machine.cores[core].cache].push_back(core);
  std::vector<Cores> complexes;
  for (auto& [cache, members] : by_cache) complexes.push_back(std::move(members));
  std::stable_sort(complexes.begin(), complexes.end(),
                   [&](const Cores& a, const Cores& b) { return cpus_in(machine, a) > cpus_in(machine, b); });
  return complexes[position.index % complexes.size()];
}

}  // namespace

std::vector<Cores> bind_to_gpus(const Topology& machine, std::size_t workers, Binding binding,
                                std::vector<std::string>& notices) {
  const auto option = binding_text(binding);
  if (machine.gpus.empty())
    throw make_error(Errc::usage, "--{}: no NVIDIA GPU is visible here; --bind works without GPUs", option);
  if (machine.gpus.size() < workers)
    throw make_error(Errc::usage, "--{}: more workers ({}) than visible GPUs ({}); each worker needs its own", option,
                     workers, machine.gpus.size());
  std::vector<Cores> result(workers);
  std::string unknown;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    const auto& gpu = machine.gpus[worker];
    if (!gpu.node) {
      unknown += (unknown.empty() ? "" : ", ") + gpu.name;
      continue;
    }
    auto cores = cores_of_node(machine, *gpu.node);
    if (cores.empty())
      throw make_error(Errc::usage, "--{}: GPU {} is attached to NUMA node {}, of which no CPU may be used here",
                       option, gpu.name, *gpu.node);
    if (binding == Binding::gpu_socket) cores = cores_of_package(machine, machine.cores[cores.front()].package);
    if (binding == Binding::gpu_exclusive)
      cores = exclusive_part(machine, cores, position_on_node(machine, worker), *gpu.node);
    if (binding == Binding::gpu_core_complex) cores = core_complex(machine, cores, position_on_node(machine, worker));
    result[worker] = std::move(cores);
  }
  if (!unknown.empty())
    notices.push_back(
        fmt::format("--{}: the NUMA node of GPU {} is unknown; its worker is not bound", option, unknown));
  return result;
}

}  // namespace ddprun
