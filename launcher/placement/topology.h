#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "ddprun/launcher/placement/cpu_list.h"
#include "ddprun/launcher/placement/gpus.h"

namespace ddprun {

// A physical core: its hardware threads that may be used, and what it shares with others.
struct Core {
  CpuList cpus{};  // never empty
  int package = 0;
  int node = 0;   // NUMA
  int cache = 0;  // cores with the same number share the last level of cache
};

// What placement has to know of a machine.
struct Topology {
  std::vector<Core> cores;  // neighbours first: in order of package, node, cache, number
  std::vector<Gpu> gpus;    // in CUDA's order
};

// The cores that the allowed processors belong to. What the kernel does not tell (no /sys, as in some containers) is
// taken to be simple: one package, one node, no hardware threads. Reads only below root.
std::vector<Core> read_cores(const CpuList& allowed, const std::filesystem::path& root = "/");

// Their number alone, in fewer reads: one for a machine without hardware threads.
std::size_t count_cores(const CpuList& allowed, const std::filesystem::path& root = "/");

}  // namespace ddprun
