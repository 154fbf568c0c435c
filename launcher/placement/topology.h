#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <vector>

#include "launcher/placement/cpu_list.h"
#include "launcher/placement/gpus.h"

namespace ddprun {

// A physical core with the hardware threads that may be used.
struct Core {
  CpuList cpus{};  // never empty
  int package = 0;
  int node = 0;   // NUMA node
  int cache = 0;  // cores with the same number share the last level of cache
};

// The part of a machine that placement may use.
struct Topology {
  std::vector<Core> cores;  // adjacent cores are neighbours: sorted by package, node, cache, number
  std::vector<Gpu> gpus;    // in CUDA's order
};

// The cores of the allowed processors. Where the kernel gives no information (some containers have no /sys) one
// package, one node and no hardware threads are assumed. Reads only below root.
std::vector<Core> read_cores(const CpuList& allowed, const std::filesystem::path& root = "/");

// Returns only their number, with fewer reads: a single one if the machine has no hardware threads.
std::size_t count_cores(const CpuList& allowed, const std::filesystem::path& root = "/");

// The CPU quota of this process, in processors: the least quota of its control group and all groups above it (cpu.max
// of version 2, cfs_quota_us of version 1). nullopt if there is no limit. Reads only below root.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace ddprun
